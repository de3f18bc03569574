//! One network, for a first look at a change: `cargo run --release --example lookup -- NODES SYBILS
//! ATTACK ATTACKED_KEYS SEED [SESSION_S] [LOSS] [COLD] [ENTRANCES] [PARTITION_S] [PARTS] [ONE_WAY]`. `chappe-lab sim
//! lookup` is the command for users.

use std::time::{Duration, Instant};

use chappe_sim::lookup::{Attack, Partition, Settings, run};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: f64| -> f64 {
        let text = arguments.get(at);
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let mut settings = Settings::new(number(4, 1.0) as u64, number(0, 1_000.0) as u32);
    settings.sybils = number(1, 0.0);
    if let Some(name) = arguments.get(2) {
        settings.attack = Attack::from_name(name).expect("scattered, nearest or region");
    }
    settings.attacked_keys = number(3, 10.0) as u32;
    let session = number(5, 0.0);
    if session > 0.0 {
        settings.session = Some(Duration::from_secs_f64(session));
        settings.settle = Duration::from_secs(1_800);
    }
    settings.link.loss = number(6, 0.0);
    settings.entrances = number(8, f64::from(settings.entrances)) as u32;
    settings.cold = number(7, f64::from(u8::from(settings.cold))) > 0.0;
    if number(9, 0.0) > 0.0 {
        let start = Duration::from_secs(60);
        settings.partition = Some(Partition {
            parts: number(10, 2.0) as u16,
            one_way: number(11, 0.0) > 0.0,
            ..Partition::new(start, start + Duration::from_secs_f64(number(9, 0.0)))
        });
    }
    let began = Instant::now();
    let mut said = began;
    let outcome = run(&settings, &mut |progress| {
        if said.elapsed() > Duration::from_secs(5) {
            said = Instant::now();
            eprintln!(
                "{} {:.0} %, {:?}, {:.0} s",
                progress.phase,
                progress.share * 100.0,
                progress.at,
                began.elapsed().as_secs_f64()
            );
        }
    });
    println!("{}", settings.command());
    println!(
        "success {:.4} of {}, attacked {:.4} of {}, devices {:.4} of {}",
        outcome.success(),
        outcome.searches,
        outcome.attacked_success(),
        outcome.attacked_searches,
        outcome.devices_share(),
        outcome.devices
    );
    if let Some(parted) = &outcome.parted {
        println!("{parted:?}");
    }
    for (name, of) in [
        ("hops", &outcome.hops),
        ("messages", &outcome.messages),
        ("asks", &outcome.asks),
        ("seconds", &outcome.seconds),
        ("inflow", &outcome.inflow),
        ("inflow/granted", &outcome.inflow_share),
        ("copies", &outcome.copies),
        ("full messages", &outcome.full_messages),
        ("full inflow", &outcome.full_inflow),
        ("full seconds", &outcome.full_seconds),
        ("state bytes", &outcome.state_bytes),
        ("contacts", &outcome.contacts),
        ("size share", &outcome.size_share),
    ] {
        println!(
            "{name:>16}: mean {:.2}, p1 {:.2}, p50 {:.2}, p99 {:.2}, max {:.2}, of {}",
            of.mean(),
            of.percentile(1.0),
            of.percentile(50.0),
            of.percentile(99.0),
            of.max(),
            of.len()
        );
    }
    for (device, (found, searches, kept)) in outcome.by_device.iter().enumerate() {
        if found < searches || device < 10 {
            println!("device {device}: {found} of {searches}, kept by {kept}");
        }
    }
    println!(
        "{:.1} B/s a node, {} replaced, {:.0} s simulated, {} steps, {:.1} s",
        outcome.bytes_per_s,
        outcome.replaced,
        outcome.simulated_s,
        outcome.steps,
        began.elapsed().as_secs_f64()
    );
}
