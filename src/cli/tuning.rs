//! Sizes and times of the store that no operator needs to know: hidden flags of `flatkube server`, for tests that want
//! segments to rotate, shelves to be written and history to go all the time.

use std::time::Duration;

use crate::store::Options;

/// The smallest and the largest log segment that can be asked for, in bytes.
const SEGMENT_BYTES: std::ops::RangeInclusive<i64> = 64 << 10..=1 << 30;

/// Each is the setting of [`Options`] with the same name.
#[derive(Debug, clap::Args)]
pub(super) struct Tuning {
    /// Bytes of every log segment
    #[arg(long, hide = true, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(SEGMENT_BYTES))]
    segment_bytes: Option<u32>,

    /// Bytes of a resource's delta from which on it is shelved
    #[arg(long, hide = true, value_name = "BYTES")]
    shelve_min_bytes: Option<u64>,

    /// Bytes at which a shelf part is closed and the next begun
    #[arg(long, hide = true, value_name = "BYTES")]
    part_bytes: Option<u64>,

    /// Seconds that a sealed segment is kept at least
    #[arg(long, hide = true, value_name = "SECONDS")]
    history_age: Option<u64>,

    /// Bytes of log that are kept whatever their age
    #[arg(long, hide = true, value_name = "BYTES")]
    history_bytes_min: Option<u64>,
}

impl Tuning {
    /// The usual settings with those that were asked for.
    pub(super) fn options(&self) -> Options {
        let usual = Options::default();
        Options {
            segment_bytes: self.segment_bytes.unwrap_or(usual.segment_bytes),
            segment_bytes_first: self.segment_bytes.unwrap_or(usual.segment_bytes_first),
            shelve_min_bytes: self.shelve_min_bytes.unwrap_or(usual.shelve_min_bytes),
            part_bytes: self.part_bytes.unwrap_or(usual.part_bytes),
            history_age: self.history_age.map_or(usual.history_age, Duration::from_secs),
            history_bytes_min: self.history_bytes_min.unwrap_or(usual.history_bytes_min),
            ..usual
        }
    }
}
