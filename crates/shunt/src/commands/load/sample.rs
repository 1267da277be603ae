//! The load of two CPUs, and a self-test.

use shunt_lab::{
    Conditions, Doubt,
    load::{Calibration, CpuLoad, Load, SelfTest, SelfTestStep, StatShares},
};

/// The load of a forwarding CPU, whose softirqs /proc/stat underestimates, and of another CPU.
pub(crate) fn load() -> Load {
    let cpu = |cpu, load_percent, stat: [f64; 6]| CpuLoad {
        cpu,
        load_percent,
        error_points: 0.12,
        speed_percent: 99.9,
        memory_slowdown_percent: 3.3,
        soaked_percent: Some(61.7),
        taken_percent: 0.11,
        soaker_mbytes_per_second: 230.0,
        proc_stat: StatShares {
            busy_percent: Some(stat[0]),
            user_percent: stat[1],
            system_percent: stat[2],
            irq_percent: stat[3],
            softirq_percent: stat[4],
            steal_percent: stat[5],
        },
    };
    Load {
        seconds: 1.0004,
        load_percent: 23.2,
        cpus: vec![
            cpu(0, 38.3, [24.5, 1.2, 0.7, 0.4, 22.2, 1.6]),
            cpu(1, 8.1, [7.9, 5.1, 2.8, 0.0, 0.2, 0.3]),
        ],
        doubts: vec![Doubt::Stolen { cpu: 0, percent: 1.6 }, Doubt::CpusLeftOut { cpus: vec![2, 3] }],
        conditions: Conditions { kernel: Some("6.6.3".to_owned()), ..Conditions::default() },
    }
}

/// A self-test on one quiet CPU.
pub(crate) fn self_test() -> SelfTest {
    let step = |injected_percent, error_points| SelfTestStep {
        cpu: 0,
        injected_percent,
        others_percent: 0.1,
        interrupts_percent: 0.8,
        measured_percent: injected_percent + 0.8 * (1.0 - injected_percent / 100.0) + error_points,
        error_points,
        windows: 6,
        quiet_windows: 5,
    };
    let calibration = Calibration {
        round_ns: 25_400.5,
        spread: 0.0004,
        windows: 12,
        register_ns: 5033.0,
        memory_ns: 5120.0,
    };
    SelfTest {
        max_error_points: 0.4,
        steps: vec![step(25.1, 0.2), step(50.1, 0.4), step(75.2, -0.3)],
        calibrations: vec![calibration],
        doubts: vec![Doubt::VirtualMachine { hypervisor: "QEMU".to_owned() }],
        conditions: Conditions::default(),
    }
}
