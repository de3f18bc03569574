//! Units of time by their symbols.

use core::time::Duration;

/// The length of the unit of time with this symbol: `ns`, `us`, `ms`, `s`, `m`, `h` or `d`.
///
/// ```
/// use chappe_machine::time_unit;
/// assert_eq!(time_unit("m"), Some(std::time::Duration::from_secs(60)));
/// assert_eq!(time_unit("week"), None);
/// ```
#[must_use]
pub fn time_unit(symbol: &str) -> Option<Duration> {
    Some(match symbol {
        "ns" => Duration::from_nanos(1),
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3_600),
        "d" => Duration::from_secs(86_400),
        _ => return None,
    })
}
