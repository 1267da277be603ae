//! Reports of the lab that the web page offers.

use serde::{Deserialize, Serialize};

/// A page that `shunt report` wrote, in the directory `page_reports`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoredReport {
    /// The name of its file, or of the campaign's directory that has it as `report.html`.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was written, in seconds since 1970-01-01T00:00:00Z.
    pub written_s: u64,
}
