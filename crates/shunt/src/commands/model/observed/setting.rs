//! Settings of a run of the model.

/// The time of a run: so long that what a ring holds at the end hardly counts, and so short that hundreds of runs take
/// seconds.
const SECONDS: &str = "0.2";

/// Settings as for `Case::set`, for a run of a fit.
pub(super) fn settings(of: &[(&str, String)]) -> Vec<(String, String)> {
    let given = of.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    given.chain([("traffic.seconds".to_owned(), SECONDS.to_owned())]).collect()
}
