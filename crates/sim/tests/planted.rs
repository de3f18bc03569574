//! Goal: the simulation finds what it claims to find.
//! Method: one defect after the other is planted in the product; the runs must report a violation
//! within a stated number of seeds, under the faults that bring the defect out. The run that shows it
//! is clean without it.
//!
//! Needs the feature `planted`, which ordinary builds and the workspace's tests do not have:
//! `cargo test --release -p chappe-sim --features planted --test planted`.

use chappe_flow::planted::{self as flow, Defect as InFlow};
use chappe_log::planted::{self as log, Defect as InLog};
use chappe_sim::exchange::{Fault, Settings, run};

/// What a defect is looked for with.
struct Hunt {
    faults: Vec<Fault>,
    /// What origins keep; `None`: the seed chooses.
    keep: Option<u64>,
    within: u64,
}

impl Hunt {
    /// The first promise that the run of this seed breaks.
    fn violation(&self, seed: u64) -> Option<String> {
        let report = run(&Settings {
            faults: self.faults.clone(),
            keep: self.keep,
            ..Settings::new(seed)
        });
        report.violations.first().map(ToString::to_string)
    }

    /// Plants the defect and looks for it: the line that says where it was found, or what is wrong.
    /// The run that shows it must be clean without it.
    fn find(&self, name: &str, plant: impl Fn(bool)) -> Result<String, String> {
        plant(true);
        let found = (1..=self.within).find_map(|seed| Some((seed, self.violation(seed)?)));
        plant(false);
        let within = self.within;
        let Some((seed, what)) = found else {
            return Err(format!("{name} is not found within {within} seeds"));
        };
        match self.violation(seed) {
            None => Ok(format!(
                "{name}: found by seed {seed} of at most {within}: {what}"
            )),
            Some(what) => Err(format!(
                "{name}: seed {seed} is not clean without it: {what}"
            )),
        }
    }
}

/// The faults that bring out a defect of a session, and the seeds within which it is found.
fn of_flow(defect: InFlow) -> (Vec<Fault>, u64) {
    match defect {
        InFlow::AcknowledgesEarly => (vec![Fault::PowerLoss], 20),
        InFlow::ResumesTooFar => (vec![Fault::Kill], 20),
        InFlow::IgnoresEpoch => (vec![Fault::OldState], 50),
        InFlow::CreditStuck => (vec![Fault::Reset], 100),
        InFlow::HidesGaps => (vec![Fault::BitRot, Fault::Partition], 100),
        InFlow::HidesRollback => (vec![Fault::OldState], 50),
        InFlow::NeverSendsAgain => (vec![Fault::Reordering, Fault::AsymmetricLoss], 100),
        InFlow::HandsOutTwice => (vec![Fault::Reordering], 50),
        InFlow::WaitsForEver => (vec![Fault::PowerLoss, Fault::Partition], 100),
        InFlow::KeepsRecords => (vec![Fault::BitRot], 50),
        InFlow::LostOvertakes => (vec![Fault::QueueFull, Fault::BitRot], 200),
    }
}

fn of_log(defect: InLog) -> (Vec<Fault>, u64) {
    match defect {
        InLog::AcknowledgesUnsynced => (vec![Fault::PowerLoss], 20),
        InLog::IgnoresFailedSync => (vec![Fault::FailedSync, Fault::PowerLoss], 200),
        InLog::CutsMiddle => (vec![Fault::BitRot, Fault::Kill], 100),
        InLog::IgnoresCopy => (vec![Fault::OldState], 50),
        InLog::ForgetsFills => (vec![Fault::BitRot, Fault::Kill], 100),
        InLog::TrustsBytes => (vec![Fault::BitRot, Fault::Kill], 100),
        InLog::HidesLosses => (vec![Fault::BitRot], 50),
        InLog::KeepsDerived => (vec![Fault::PowerLoss, Fault::TornWrite], 200),
        InLog::TrimsDamage => (vec![Fault::BitRot, Fault::Kill], 200),
    }
}

/// What origins keep where a defect shows only in what they let go of: few elements, so that a mark
/// often comes to stand right before damage.
fn kept(defect: InLog) -> Option<u64> {
    (defect == InLog::TrimsDamage).then_some(20)
}

/// One test for all: what is planted is planted in the whole process.
#[test]
fn every_planted_defect_is_found() {
    let mut wrong = Vec::new();
    let mut note = |found: Result<String, String>| match found {
        Ok(line) => println!("{line}"),
        Err(line) => wrong.push(line),
    };
    for defect in InFlow::ALL {
        let (faults, within) = of_flow(defect);
        let hunt = Hunt {
            faults,
            // Where much is let go of, much is named as lost.
            keep: (defect == InFlow::LostOvertakes).then_some(20),
            within,
        };
        let plant = |on: bool| flow::plant(on.then_some(defect));
        note(hunt.find(&format!("{defect:?}"), plant));
    }
    for defect in InLog::ALL {
        let (faults, within) = of_log(defect);
        let hunt = Hunt {
            faults,
            keep: kept(defect),
            within,
        };
        let plant = |on: bool| log::plant(on.then_some(defect));
        note(hunt.find(&format!("{defect:?}"), plant));
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
