//! The case about the port's MAC address.

use super::{
    Checked, Fault,
    port::Port,
    wire::{Sent, Wire, empty},
};
use shunt_wire::Mac;
use std::time::{Duration, Instant};

/// Frames to each address.
const FRAMES: usize = 256;
/// The first bytes of the other address: locally administered, and easy to find in a capture.
const LOCAL: [u8; 2] = [0x02, 0x53];
/// Bytes of the two frames whose destination is compared with the port's address.
const FRAME_BYTES: usize = 60;
/// Longest time until both have arrived.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a port does with a frame to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// The NIC does not pass it on.
    No,
    /// The NIC passes it on, and the stack ignores it.
    Ignored,
    Yes,
}

pub(super) fn change(wire: &Wire) -> Checked {
    let (port, old) = (&wire.port, wire.macs[0]);
    let new = other_address(old);
    let how = set(port, new)?;
    let checked = takes_only(wire, new, old);
    // `checked` may be a failure of the port; what it was before comes back in any case.
    set(port, old)?;
    checked?;
    takes_only(wire, old, new).map_err(|fault| match fault {
        Fault::Failed(why) => Fault::Failed(format!("after its own address came back: {why}")),
        other => other,
    })?;
    Ok(format!("{FRAMES} frames to {new} passed, then {FRAMES} to {old}, and none to the other one{how}"))
}

/// An address that no port has: that of this port with other first bytes.
fn other_address(Mac(mut bytes): Mac) -> Mac {
    let differs = bytes[..2] != LOCAL;
    bytes[..2].copy_from_slice(&LOCAL);
    bytes[5] ^= u8::from(!differs);
    Mac(bytes)
}

/// Sets the address, and says if the port had to go down for it.
fn set(port: &Port, to: Mac) -> Result<&'static str, Fault> {
    let line = format!("ip link set {} address {to}", port.name);
    let mut how = "";
    if let Err(while_up) = port.run(&line) {
        if port.state().map_err(Fault::Broken)?.has_addresses() {
            return Err(Fault::Impossible(format!(
                "the driver changes no address while the port is up, and taking it down would lose its routes: {while_up}"
            )));
        }
        port.run(&format!("ip link set {} down", port.name)).map_err(Fault::Broken)?;
        let while_down = port.run(&line);
        port.run(&format!("ip link set {} up", port.name)).map_err(Fault::Broken)?;
        while_down
            .map_err(|why| Fault::Impossible(format!("the driver does not change its address: {why}")))?;
        how = "; the driver changes it only while the port is down";
    }
    let shown = port.shown().map_err(Fault::Broken)?.address;
    if shown.parse() != Ok(to) {
        return Err(Fault::Failed(format!("{port} accepted the address {to}, and shows {shown}")));
    }
    port.wait_for_link().map_err(Fault::Failed)?;
    Ok(how)
}

/// Whether the port takes frames to one address, and does not take those to the other.
fn takes_only(wire: &Wire, right: Mac, wrong: Mac) -> Result<(), Fault> {
    let port = &wire.port;
    let frames = vec![Sent { to: Some(right), ..Sent::long(100) }; FRAMES];
    wire.send(1, &frames)?.all("")?;
    let [of_wrong, of_right] = taken(wire, [wrong, right])?;
    match (of_right, of_wrong) {
        (Taken::Yes, Taken::No | Taken::Ignored) => Ok(()),
        (Taken::Yes, Taken::Yes) => {
            Err(Fault::Failed(format!("{port} has the address {right}, and still takes frames to {wrong}")))
        }
        _ => Err(Fault::Failed(format!("{port} has the address {right}, and does not take frames to it"))),
    }
}

/// The port's reaction to a frame for each of two addresses; the frame for the second one arrives last.
fn taken(wire: &Wire, to: [Mac; 2]) -> Result<[Taken; 2], Fault> {
    let mut result = [Taken::No; 2];
    for address in to {
        let frame = empty(wire.macs[1], address, FRAME_BYTES);
        wire.tap(1)
            .try_send(&frame)
            .map_err(|error| Fault::Failed(format!("{} refuses a frame: {error}", wire.ends[1])))?;
    }
    let deadline = Instant::now() + PATIENCE;
    while result[1] == Taken::No {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(frame) = wire.receive_frame(0, left)? else { break };
        let same = |address: &Mac| frame.bytes == empty(wire.macs[1], *address, FRAME_BYTES);
        if let Some(which) = to.iter().position(same) {
            result[which] = if frame.for_other { Taken::Ignored } else { Taken::Yes };
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_address_is_unicast_local_and_differs() {
        let own = Mac([0x52, 0x54, 0, 1, 2, 3]);
        assert_eq!(other_address(own), Mac([0x02, 0x53, 0, 1, 2, 3]));
        let again = other_address(other_address(own));
        assert_ne!(again, other_address(own));
        assert_eq!(again.0[0] & 3, 2, "locally administered, unicast");
    }
}
