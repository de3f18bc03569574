//! Which pacer, by its name on the command line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chappe_flow::pacer::{Adaptive, FixedPeriod, FixedWindow, Flood, Napa, NapaConfig, Pacer};

use super::Error;

/// The names, for whoever asks wrongly.
const NAMES: &str = "flood, fixed_window:SAMPLES, fixed_period:DURATION, napa or adaptive";

/// How the time between samples is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// As fast as the window allows.
    Flood,
    /// So many samples on the way at most.
    FixedWindow(u32),
    /// A sample every so often.
    FixedPeriod(Duration),
    /// After the paper.
    Napa,
    /// Chappe's own.
    Adaptive,
}

impl Pacing {
    /// Whether it lives on acknowledgements.
    #[must_use]
    pub const fn needs_acknowledgements(&self) -> bool {
        matches!(self, Self::FixedWindow(_) | Self::Napa | Self::Adaptive)
    }

    /// The pacer; `napa` is what the paper's has to be told.
    pub(crate) fn pacer(&self, napa: NapaConfig) -> Box<dyn Pacer> {
        match self {
            Self::Flood => Box::new(Flood::default()),
            Self::FixedWindow(samples) => Box::new(FixedWindow::of_elements(u64::from(*samples))),
            Self::FixedPeriod(period) => Box::new(FixedPeriod::new(*period)),
            Self::Napa => Box::new(Napa::new(napa)),
            Self::Adaptive => Box::new(Adaptive::default()),
        }
    }
}

impl fmt::Display for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flood => f.write_str("flood"),
            Self::FixedWindow(samples) => write!(f, "fixed_window:{samples}"),
            Self::FixedPeriod(period) => {
                write!(f, "fixed_period:{}us", period.as_nanos() as f64 / 1e3)
            }
            Self::Napa => f.write_str("napa"),
            Self::Adaptive => f.write_str("adaptive"),
        }
    }
}

impl FromStr for Pacing {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong =
            || Error::new(format!("there is no pacer {text:?}")).hint(format!("there are {NAMES}"));
        let name = text.replace('-', "_");
        Ok(match name.split_once(':') {
            None => match name.as_str() {
                "flood" => Self::Flood,
                "napa" => Self::Napa,
                "adaptive" => Self::Adaptive,
                _ => return Err(wrong()),
            },
            Some(("fixed_window", samples)) => match samples.parse() {
                Ok(samples) if samples > 0 => Self::FixedWindow(samples),
                _ => return Err(wrong().hint("such as fixed_window:16, in samples, at least 1")),
            },
            Some(("fixed_period", period)) => match duration(period) {
                Some(period) if !period.is_zero() => Self::FixedPeriod(period),
                _ => return Err(wrong().hint("such as fixed_period:250us")),
            },
            Some(_) => return Err(wrong()),
        })
    }
}

/// A duration such as `250us`.
fn duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let unit = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacers_are_read_as_they_are_printed_or_refused_with_those_there_are() {
        for text in [
            "flood",
            "napa",
            "adaptive",
            "fixed_window:16",
            "fixed_period:2.5us",
        ] {
            assert_eq!(text.parse::<Pacing>().unwrap().to_string(), text);
        }
        let period = "fixed-period:1ms".parse::<Pacing>().unwrap();
        assert_eq!(period, Pacing::FixedPeriod(Duration::from_millis(1)));
        for text in [
            "",
            "fast",
            "fixed-window:0",
            "fixed-window",
            "fixed-period:0us",
            "fixed-period:1",
            "flood:1",
        ] {
            assert!(text.parse::<Pacing>().unwrap_err().hint.is_some(), "{text}");
        }
    }
}
