//! Programs that see the frames which XDP forwards, for a time: the messages of `/v1/taps`.

use serde::{Deserialize, Serialize};

/// The body of `POST /v1/taps`. A request with the same `leaving` as the one before only sets the time again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TapRequest {
    /// The id of a program of the type `xdp/devmap`, which runs for each frame that XDP has forwarded to a port.
    pub leaving: u32,
    /// The programs that take the place of the engine's. Without any, nothing is attached.
    pub entering: Vec<EnteringTap>,
    /// After this many seconds, 1 to 60, the daemon puts everything back.
    pub for_s: u64,
}

/// A program that takes the place of a port's XDP program, which it calls for each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EnteringTap {
    /// Interface index of the port.
    pub ifindex: u32,
    /// The id of the program.
    pub program: u32,
    /// The id of the program that the port has, which comes back afterwards.
    pub instead_of: u32,
}

impl TapRequest {
    /// The longest `for_s`.
    pub const LONGEST_S: u64 = 60;
}
