//! What happens on the bottleneck when something changes: a receiver halves its speed, two senders share, one of four
//! readers dies.

use std::time::{Duration, Instant};

use chappe_sim::pacing::Moment;

use super::super::cable::Cable;
use super::super::simulation::{back_after, mean};
use super::pair::{Measured, Pair, Started, event, join, read};
use super::{Carrier, NARROW, Route};
use crate::plot::{Mark, Plot, Series};
use crate::process::Process;
use crate::report::file_name;
use crate::{Error, Limit, Reference, Report, Settings};

/// A short sample and a long one. Shorter ones come faster than a receiver's timer is precise.
const SIZES: [usize; 2] = [20_000, 100_000];
/// The interval of the rows.
const INTERVAL: Duration = Duration::from_millis(100);
/// The receiver takes this factor more than the bottleneck passes, then half.
const SPARE: f64 = 1.1;
/// When the receiver halves its speed, and the end.
const SLOWS_S: u64 = 4;
const HALVED_S: u64 = 8;
/// When a reader dies, and the end: Cyclone DDS takes it for gone after 10 s.
const DIES_S: u64 = 5;
const DIED_S: u64 = 25;

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// All changes over one carrier.
pub(super) fn run(carrier: Carrier, settings: &Settings, report: &mut Report) -> Result<(), Error> {
    type Change = fn(&Pair<'_>, &str, &mut Report) -> Result<(), Error>;
    let program = settings.chappe()?;
    let changes: [(&str, Change); 3] = [
        ("the receiver halves its speed", halved),
        ("two senders share", shared),
        ("one of four readers dies", died),
    ];
    let wanted = |size: &usize| settings.sizes.is_empty() || settings.sizes.contains(size);
    for size in SIZES.into_iter().filter(wanted) {
        for (what, change) in changes {
            // Over ZeroMQ each sender has a bottleneck of its own.
            if carrier == Carrier::Zeromq && what != changes[0].0 {
                continue;
            }
            let name = format!("{} narrow, {} kB: {what}", carrier.name(), size / 1_000);
            (settings.progress)(&name);
            let (route, window) = (Route::Narrow(0.0), carrier.window(size));
            let pair = Pair {
                interval: INTERVAL,
                ..Pair::new(carrier, route, size, window, &program, settings.seed)
            };
            if let Err(error) = change(&pair, &name, report) {
                report.failed(&name, &error);
            }
        }
    }
    Ok(())
}

/// `adaptive` follows a receiver that from a time on takes half as much.
fn halved(pair: &Pair<'_>, name: &str, report: &mut Report) -> Result<(), Error> {
    let wire = f64::from(NARROW.bytes_per_s);
    let size = pair.size as f64;
    let take_s = size / (wire * SPARE);
    let slowing = Pair {
        takes: Some((Duration::from_secs_f64(take_s), seconds(SLOWS_S))),
        ..pair.clone()
    };
    let all = slowing.within(|cable| {
        let started = slowing.start(
            &["adaptive".to_owned()],
            (seconds(1), seconds(HALVED_S - 1)),
            None,
            cable,
        )?;
        watched(started, None)
    })?;
    let Some(moments) = all.first() else {
        return Ok(());
    };
    let (rate, from) = (wire * SPARE / 2.0, SLOWS_S as f64);
    let least = size / wire + NARROW.latency.as_secs_f64() + take_s * 2.0;
    let back = back_after(moments, from, rate, 2.0 * least);
    let before = Reference::new("the time before", from);
    let within = Limit::AtMost(1.0 / from);
    report.target(format!("{name}: back after"), (back, "s"), before, within);
    let end = HALVED_S as f64;
    let reached = mean(moments, end - 2.0, end - 0.2, |it| {
        it.throughput_bytes_per_s
    });
    let latency = mean(moments, end - 2.0, end - 0.2, |it| it.latency_p50_s) * 1e3;
    report.row(
        name,
        reached / 1e6,
        "MB/s",
        format!(
            "at the end, of {:.1} that it takes; p50 {latency:.2} ms",
            rate / 1e6
        ),
    );
    let takes = Reference::new("the receiver takes", rate / 1e6);
    let at_least = Limit::AtLeast(0.9);
    report.target(
        format!("{name}: rate"),
        (reached / 1e6, "MB/s"),
        takes,
        at_least,
    );
    over_time(report, name, &all);
    Ok(())
}

/// Two senders with `adaptive`, the second a while later, over the same bottleneck.
fn shared(pair: &Pair<'_>, name: &str, report: &mut Report) -> Result<(), Error> {
    let second = Pair {
        number: 1,
        ..pair.clone()
    };
    let both = pair.within(|cable| {
        let measured = |pair: &Pair<'_>, warm_up: u64, time: u64| {
            pair.start(
                &["adaptive".to_owned()],
                (seconds(warm_up), seconds(time)),
                None,
                cable,
            )
        };
        // Both are measured until the first ends.
        let first = measured(pair, 6, 8)?;
        let second = measured(&second, 5, 7)?;
        Ok([outcome(first)?, outcome(second)?])
    })?;
    let rates = both.each_ref().map(|it| it.point.throughput_bytes_per_s);
    let latency = both.each_ref().map(|it| it.point.latency_s * 1e3);
    let (least, most) = (rates[0].min(rates[1]), rates[0].max(rates[1]));
    let note = format!(
        "{:.1} and {:.1} MB/s; p50 {:.2} and {:.2} ms",
        rates[0] / 1e6,
        rates[1] / 1e6,
        latency[0],
        latency[1]
    );
    report.row(name, (least + most) / 1e6, "MB/s", note);
    let smaller = Reference::new("the smaller", least / 1e6);
    let larger = (most / 1e6, "MB/s");
    report.target(
        format!("{name}: the larger"),
        larger,
        smaller,
        Limit::AtMost(1.2),
    );
    let wire = Reference::new("the bottleneck", f64::from(NARROW.bytes_per_s) / 1e6);
    let sum = ((least + most) / 1e6, "MB/s");
    report.target(format!("{name}: together"), sum, wire, Limit::AtLeast(0.8));
    Ok(())
}

/// Of four readers one is killed: the others have as much as before at the end.
fn died(pair: &Pair<'_>, name: &str, report: &mut Report) -> Result<(), Error> {
    let four = Pair {
        subscribers: 4,
        ..pair.clone()
    };
    let all = four.within(|cable: Option<&Cable>| {
        let started = four.start(
            &["adaptive".to_owned()],
            (seconds(1), seconds(DIED_S - 1)),
            None,
            cable,
        )?;
        watched(started, Some(seconds(DIES_S)))
    })?;
    let rate = |from: u64, until: u64| {
        let each = all.iter().map(|moments| {
            mean(moments, from as f64, until as f64, |it| {
                it.throughput_bytes_per_s
            })
        });
        each.fold(f64::INFINITY, f64::min)
    };
    let (before, after) = (rate(DIES_S - 3, DIES_S - 1), rate(DIED_S - 4, DIED_S - 1));
    let slow = |it: &&Moment| it.at_s > DIES_S as f64 && it.throughput_bytes_per_s < before / 2.0;
    let pauses = all
        .iter()
        .map(|moments| moments.iter().filter(slow).count());
    let pause = pauses.max().unwrap_or(0) as f64 * INTERVAL.as_secs_f64();
    let note = format!(
        "the least of the others at the end, of {:.1} before; below half of that for {pause:.1} s",
        before / 1e6
    );
    report.row(name, after / 1e6, "MB/s", note);
    let earlier = Reference::new("before", before / 1e6);
    let later = (after / 1e6, "MB/s");
    report.target(
        format!("{name}: the others"),
        later,
        earlier,
        Limit::AtLeast(0.9),
    );
    over_time(report, name, &all);
    Ok(())
}

/// Both ends' result of the only phase.
fn outcome(mut started: Started) -> Result<Measured, Error> {
    let failed = || Error::Failed("no phase was measured".to_owned());
    let subscriber = started.subscribers.first_mut().ok_or_else(failed)?;
    let (published, subscribed) = std::thread::scope(|scope| {
        let publisher = &mut started.publisher;
        let published = scope.spawn(move || event(publisher, "published"));
        let subscribed = event(subscriber, "subscribed");
        (published.join(), subscribed)
    });
    let published = published.map_err(|_| Error::Failed("the reading panicked".to_owned()))??;
    let mut all = join(&published, &subscribed?);
    all.pop().ok_or_else(failed)
}

/// What each subscriber saw over time. After `kills` the last one is killed.
fn watched(mut started: Started, kills: Option<Duration>) -> Result<Vec<Vec<Moment>>, Error> {
    let began = Instant::now();
    let victim = kills.and_then(|after| Some((after, started.subscribers.pop()?)));
    let panicked = |_| Error::Failed("the reading panicked".to_owned());
    std::thread::scope(|scope| {
        let publisher = &mut started.publisher;
        let published = scope.spawn(move || event(publisher, "published"));
        let rows = started.subscribers.iter_mut().map(|subscriber| {
            // They began already, and print more than a pipe holds.
            scope.spawn(move || moments(subscriber))
        });
        let rows: Vec<_> = rows.collect();
        if let Some((after, victim)) = victim {
            std::thread::sleep(after.saturating_sub(began.elapsed()));
            drop(victim);
        }
        let all = rows.into_iter().map(|one| one.join().map_err(panicked)?);
        let all = all.collect::<Result<_, Error>>()?;
        published.join().map_err(panicked)??;
        Ok(all)
    })
}

/// The rows of a subscriber until its end.
fn moments(subscriber: &mut Process) -> Result<Vec<Moment>, Error> {
    let mut all = Vec::new();
    loop {
        let value = read(&subscriber.line()?)?;
        let number = |name: &str| value[name].as_f64().unwrap_or(0.0);
        match value["event"].as_str() {
            Some("subscribed") => return Ok(all),
            Some("interval") => all.push(Moment {
                at_s: number("at_s"),
                throughput_bytes_per_s: number("bytes_per_s"),
                latency_p50_s: number("latency_p50_us") / 1e6,
                ..Moment::default()
            }),
            _ => {}
        }
    }
}

fn over_time(report: &mut Report, name: &str, all: &[Vec<Moment>]) {
    let lines = all.iter().enumerate().map(|(number, moments)| {
        let points = moments
            .iter()
            .map(|it| (it.at_s, it.throughput_bytes_per_s / 1e6));
        Series::new(format!("receiver {}", number + 1), Mark::Line).with(points)
    });
    let plot = Plot::new(name, "s", "MB/s").with(lines);
    report.figure(file_name(name), &plot);
}
