//! An explanation.

use crate::commands::flows::sample::tcp;
use shunt_api::{Because, Direction, Engine, Explained, Explanation, Why};

pub(crate) fn explanation() -> Explanation {
    let [orig, reply] = <[Direction; 2]>::try_from(tcp().directions).unwrap();
    let fast = Why {
        dir: orig.dir,
        tuple: orig.tuple,
        fast: true,
        since_s: Some(3725),
        engine: Some(Engine::Xdp),
        in_port: Some(orig.in_port),
        out_port: Some(orig.out_port),
        because: None,
    };
    let because = Because {
        reason: "not-proved".to_owned(),
        meaning: "Linux changes its packets".to_owned(),
        detail: "it was fast until 9 s ago: idle".to_owned(),
        remedy: "see which rule it is".to_owned(),
    };
    let slow = Why {
        dir: reply.dir,
        tuple: reply.tuple,
        fast: false,
        since_s: None,
        engine: None,
        in_port: None,
        out_port: None,
        because: Some(because),
    };
    let state = Some("ESTABLISHED".to_owned());
    let known = Explained { protocol: 6, tracked: true, state, directions: vec![fast, slow.clone()] };
    let unknown = Explained { protocol: 17, tracked: false, state: None, directions: vec![slow] };
    Explanation { connections: vec![known, unknown], more: 7 }
}
