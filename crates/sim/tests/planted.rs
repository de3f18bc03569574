//! Goal: the simulation finds the defects that it claims to find.
//! Method: one defect after another is planted in the product; the runs must report a violation
//! within a stated number of seeds, under the faults that expose the defect. The run that shows it
//! has no violation without it.
//!
//! Needs the feature `planted`, which ordinary builds and the workspace's tests do not have:
//! `cargo test --release -p chappe-sim --features planted --test planted`.

use chappe_flow::planted::{self as flow, Defect as InFlow};
use chappe_link::planted::{self as link, Defect as InLink};
use chappe_log::planted::{self as log, Defect as InLog};
use chappe_sim::exchange::{Fault, Settings, run};

/// The runs in which a defect must show.
struct Hunt {
    faults: Vec<Fault>,
    /// The number of elements that origins keep; `None`: the seed chooses.
    keep: Option<u64>,
    within: u64,
}

impl Hunt {
    /// The first violation in the run of this seed.
    fn violation(&self, seed: u64) -> Option<String> {
        let report = run(&Settings {
            faults: self.faults.clone(),
            keep: self.keep,
            ..Settings::new(seed)
        });
        report.violations.first().map(ToString::to_string)
    }

    /// Plants the defect and looks for it: a line with the seed that found it, or the error. The run that
    /// shows it must have no violation without it.
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

/// The faults that expose a defect of a session, and the number of seeds within which it is found.
fn of_flow(defect: InFlow) -> (Vec<Fault>, u64) {
    match defect {
        InFlow::AcknowledgesEarly => (vec![Fault::PowerLoss], 20),
        InFlow::ResumesTooFar => (vec![Fault::Kill], 20),
        InFlow::IgnoresEpoch => (vec![Fault::OldState], 50),
        InFlow::CreditStuck => (vec![Fault::Reset], 100),
        InFlow::HidesGaps => (vec![Fault::BitRot, Fault::Partition], 100),
        InFlow::HidesRollback => (vec![Fault::OldState], 50),
        InFlow::KeepsRecords => (vec![Fault::BitRot], 150),
        InFlow::LostOvertakes => (vec![Fault::QueueFull, Fault::BitRot], 200),
    }
}

/// The same for a defect of a link's end.
fn of_link(defect: InLink) -> (Vec<Fault>, u64) {
    match defect {
        InLink::PassesParked => (vec![Fault::QueueFull], 50),
        InLink::AcknowledgesQueued => (vec![Fault::PowerLoss], 20),
        InLink::RestoresShifted => (vec![Fault::BitRot], 50),
        InLink::ResumesPastTrim => (vec![Fault::Kill, Fault::Partition], 100),
        InLink::IgnoresEarlier => (vec![Fault::OldState], 100),
        InLink::AnnouncesLate => (vec![Fault::Kill], 20),
        InLink::PutsBackShifted => (vec![Fault::BitRot], 50),
        InLink::AnswersShifted => (vec![Fault::BitRot], 50),
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

/// Number of elements that origins keep if a defect appears only at trimmed elements: few, so that
/// a trim mark is often right before damage.
fn kept(defect: InLog) -> Option<u64> {
    (defect == InLog::TrimsDamage).then_some(20)
}

/// One test for all: a defect is planted in the whole process.
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
            // If much is trimmed, much is reported lost.
            keep: (defect == InFlow::LostOvertakes).then_some(20),
            within,
        };
        let plant = |on: bool| flow::plant(on.then_some(defect));
        note(hunt.find(&format!("{defect:?}"), plant));
    }
    for defect in InLink::ALL {
        let (faults, within) = of_link(defect);
        let hunt = Hunt {
            faults,
            keep: (defect == InLink::ResumesPastTrim).then_some(20),
            within,
        };
        let plant = |on: bool| link::plant(on.then_some(defect));
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
