//! The command that runs a network again.

use std::fmt::Write;
use std::time::Duration;

use chappe_notification_tree::{Choice, Plan};

use super::{Settings, mixed};

impl Settings {
    /// The command that repeats these settings, or the settings themselves, where `chappe-lab sim
    /// tree` has no flag for one of them.
    #[must_use]
    pub fn again(&self) -> String {
        let seed = self.seed;
        if *self == mixed(seed) {
            return format!("chappe-lab sim tree --mixed 1 --seed {seed}");
        }
        self.command().unwrap_or_else(|| format!("{self:?}"))
    }

    fn command(&self) -> Option<String> {
        let (plan, cap) = self.plan_flags()?;
        let order = self.order.name();
        let plain = Self::new(self.seed, self.sinks).planned(self.plan);
        // Settings with a flag; all others have to be at their defaults.
        let flags = Self {
            pacer: self.pacer.clone(),
            lies: self.lies.clone(),
            sources: self.sources,
            events: self.events,
            period: self.period,
            heartbeat: self.heartbeat,
            order: self.order,
            critical: self.critical,
            send_cost: self.send_cost,
            latency: self.latency,
            jitter: self.jitter,
            handling: self.handling,
            loss: self.loss,
            dead: self.dead,
            crashing: self.crashing,
            flaky: self.flaky,
            liars: self.liars,
            slow: self.slow,
            port_rate_bytes_per_s: self.port_rate_bytes_per_s,
            port_queue_bytes: self.port_queue_bytes,
            receive_buffer: self.receive_buffer,
            authenticated: self.authenticated,
            attempts: self.attempts,
            within: self.within,
            timeout_floor: self.timeout_floor,
            ..plain.clone()
        };
        let all_lies = self.liars == 0.0 || self.lies == plain.lies;
        if flags != *self || !all_lies {
            return None;
        }
        let mut command = format!(
            "chappe-lab sim tree --seed {} --sinks {} --plan {plan} --cap {cap} --order {order}",
            self.seed, self.sinks
        );
        self.write_numbers(&mut command);
        let shares = [
            ("critical", self.critical),
            ("flaky", self.flaky),
            ("loss", self.loss),
            ("dead", self.dead),
            ("crashing", self.crashing),
            ("slow", self.slow),
            ("liars", self.liars),
        ];
        for (flag, share) in shares.iter().filter(|(_, share)| *share > 0.0) {
            let _ = write!(command, " --{flag} {}", percent(*share)?);
        }
        if let Some(rate) = self.port_rate_bytes_per_s {
            let queue = self.port_queue_bytes;
            let _ = write!(command, " --port-rate {rate} --port-queue {queue}");
        }
        if let Some(pacer) = &self.pacer {
            let _ = write!(command, " --pacer {pacer}");
        }
        for (flag, said) in [
            (" --heartbeat", self.heartbeat),
            (" --trusted-network", !self.authenticated),
        ] {
            command.push_str(if said { flag } else { "" });
        }
        Some(command)
    }

    fn write_numbers(&self, command: &mut String) {
        let numbers = [
            ("sources", u64::from(self.sources)),
            ("events", u64::from(self.events)),
            ("receive-buffer", self.receive_buffer as u64),
            ("attempts", u64::from(self.attempts)),
        ];
        let times = [
            ("period", self.period),
            ("send-cost", self.send_cost),
            ("latency", self.latency),
            ("handling", self.handling),
            ("jitter", self.jitter),
            ("within", self.within),
            ("timeout-floor", self.timeout_floor),
        ];
        for (flag, number) in numbers {
            let _ = write!(command, " --{flag} {number}");
        }
        for (flag, time) in times {
            let _ = write!(command, " --{flag} {}ns", time.as_nanos());
        }
    }

    /// The plan's name in the flag, and its cap.
    fn plan_flags(&self) -> Option<(&'static str, u16)> {
        let nanos = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
        let optimum = |cap| {
            let delay = self.latency.saturating_add(self.handling);
            Plan::measured(nanos(self.send_cost), nanos(delay), cap)
        };
        Some(match self.plan {
            Choice::Measured { cap } => ("default", cap),
            Choice::Fixed(plan @ Plan::Postal { cap, .. }) if plan == optimum(cap) => {
                ("postal", cap)
            }
            Choice::Fixed(Plan::Postal { .. }) => return None,
            Choice::Fixed(Plan::Kary(parts)) if parts != 4 => return None,
            Choice::Fixed(Plan::Kary(_)) => ("kary", 128),
            Choice::Fixed(plan) => (plan.name(), 128),
        })
    }
}

/// A share as percent that parses to the same share, in as few digits as possible.
fn percent(share: f64) -> Option<f64> {
    let percent = share * 100.0;
    let rounded = (percent * 1e9).round() / 1e9;
    [rounded, percent]
        .into_iter()
        .find(|it| it / 100.0 == share)
}
