//! Goal: the simulation finds what it claims to find.
//! Method: one defect after the other is planted in the product; the runs must report a violation
//! within a stated number of seeds, under the faults that bring the defect out. Without a defect the
//! same seeds are clean, which `tests/exchange.rs` holds.
//!
//! Needs the feature `planted`, which ordinary builds and the workspace's tests do not have:
//! `cargo test --release -p chappe-sim --features planted --test planted`.

use chappe_flow::planted::{self as flow, Defect as InFlow};
use chappe_log::planted::{self as log, Defect as InLog};
use chappe_sim::exchange::{Fault, Settings, run};

/// The first seed that shows the planted defect, and what it shows.
fn found(faults: &[Fault], within: u64) -> Option<(u64, String)> {
    (1..=within).find_map(|seed| {
        let report = run(&Settings {
            faults: faults.to_vec(),
            ..Settings::new(seed)
        });
        let violation = report.violations.first()?;
        Some((seed, violation.to_string()))
    })
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
        InLog::TrimsDamage => (vec![Fault::BitRot, Fault::Kill, Fault::Partition], 1_500),
    }
}

/// One test for all: what is planted is planted in the whole process.
#[test]
fn every_planted_defect_is_found() {
    let mut missed = Vec::new();
    let mut note = |name: String, within: u64, found: Option<(u64, String)>| match found {
        Some((seed, what)) => println!("{name}: found by seed {seed} of at most {within}: {what}"),
        None => missed.push(format!("{name} is not found within {within} seeds")),
    };
    for defect in InFlow::ALL {
        let (faults, within) = of_flow(defect);
        flow::plant(Some(defect));
        note(format!("{defect:?}"), within, found(&faults, within));
        flow::plant(None);
    }
    for defect in InLog::ALL {
        let (faults, within) = of_log(defect);
        log::plant(Some(defect));
        note(format!("{defect:?}"), within, found(&faults, within));
        log::plant(None);
    }
    assert!(missed.is_empty(), "{missed:?}");
}
