//! A pacer by its name, as configuration and command lines write it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use super::{
    Adaptive, AdaptiveConfig, FixedPeriod, FixedWindow, Flood, Napa, NapaConfig, PERIOD_MAX, Pacer,
};

/// A pacer and its settings.
///
/// ```
/// use chappe_flow::pacer::Choice;
///
/// let choice: Choice = "fixed_window:16".parse().unwrap();
/// assert_eq!(choice.build().status().high_threshold, 16);
/// assert_eq!(choice.to_string(), "fixed_window:16");
/// let error = "fixed_window".parse::<Choice>().unwrap_err();
/// assert!(error.to_string().contains("fixed_window:16"), "it says how");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// `flood`
    Flood,
    /// `fixed_window:ELEMENTS`
    FixedWindow(u64),
    /// `fixed_period:TIME`, the time as `500us`, `1.5ms` or `1s`
    FixedPeriod(Duration),
    /// `napa`, `napa:BYTES_PER_S` or `napa:BYTES_PER_S:K`
    Napa(NapaConfig),
    /// `adaptive`
    Adaptive(AdaptiveConfig),
}

impl Default for Choice {
    fn default() -> Self {
        Self::Adaptive(AdaptiveConfig::default())
    }
}

impl Choice {
    /// The text form of each, for hints.
    pub const WORDS: &'static str = "flood, fixed_window:16, fixed_period:1ms (1s at most), \
        napa, napa:125000000:10 (bytes a second, K), or adaptive";

    /// Whether it lives on acknowledgements.
    #[must_use]
    pub const fn needs_acknowledgements(&self) -> bool {
        !matches!(self, Self::Flood | Self::FixedPeriod(_))
    }

    /// The pacer in its initial state.
    #[must_use]
    pub fn build(&self) -> Box<dyn Pacer> {
        match self {
            Self::Flood => Box::<Flood>::default(),
            Self::FixedWindow(elements) => Box::new(FixedWindow::of_elements(*elements)),
            Self::FixedPeriod(period) => Box::new(FixedPeriod::new(*period)),
            Self::Napa(config) => Box::new(Napa::new(config.clone())),
            Self::Adaptive(config) => Box::new(Adaptive::new(*config)),
        }
    }
}

/// A text that names no pacer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ChoiceError(String);

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let wrong = || {
            let words = Self::WORDS;
            ChoiceError(format!("`{text}` is not a pacer; hint: {words}"))
        };
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let (first, second, more) = (parts.next(), parts.next(), parts.next());
        let positive = |text: &str| text.parse::<u64>().ok().filter(|value| *value > 0);
        let choice = match (name, first, second, more) {
            ("flood", None, ..) => Self::Flood,
            ("adaptive", None, ..) => Self::default(),
            ("fixed_window", Some(elements), None, _) => {
                Self::FixedWindow(positive(elements).ok_or_else(wrong)?)
            }
            ("fixed_period", Some(time), None, _) => {
                Self::FixedPeriod(period(time).ok_or_else(wrong)?)
            }
            ("napa", capacity, k, None) => {
                let mut config = NapaConfig::default();
                if let Some(capacity) = capacity {
                    let capacity = capacity.parse::<f64>().ok();
                    let sound = capacity.filter(|it| it.is_finite() && *it > 0.0);
                    config.capacity_bytes_per_s = sound.ok_or_else(wrong)?;
                }
                if let Some(k) = k {
                    config.acknowledged_at_once = positive(k).ok_or_else(wrong)?;
                }
                Self::Napa(config)
            }
            _ => return Err(wrong()),
        };
        Ok(choice)
    }
}

/// A time with its unit, up to [`PERIOD_MAX`].
fn period(text: &str) -> Option<Duration> {
    let (number, unit) = if let Some(number) = text.strip_suffix("us") {
        (number, 1e-6)
    } else if let Some(number) = text.strip_suffix("ms") {
        (number, 1e-3)
    } else {
        (text.strip_suffix('s')?, 1.0)
    };
    let seconds = number.parse::<f64>().ok()? * unit;
    let sound = seconds >= 0.0 && seconds <= PERIOD_MAX.as_secs_f64();
    sound.then(|| Duration::from_secs_f64(seconds))
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flood => f.write_str("flood"),
            Self::FixedWindow(elements) => write!(f, "fixed_window:{elements}"),
            Self::FixedPeriod(period) => {
                write!(f, "fixed_period:{}us", period.as_nanos() as f64 / 1e3)
            }
            Self::Napa(config) => write!(
                f,
                "napa:{}:{}",
                config.capacity_bytes_per_s, config.acknowledged_at_once
            ),
            Self::Adaptive(_) => f.write_str("adaptive"),
        }
    }
}
