//! Measures the lateness of waits: the runtime's timer, `FineAlarm` and `sleep_until`, with and without a spin at the
//! end.
//!
//!     cargo run --release -p chappe-transport --example waiting [WAITS]

use std::time::Duration;

use chappe_transport::{FineAlarm, sleep_until};
use tokio::time::Instant;

const AHEAD_US: [u64; 4] = [50, 250, 1_000, 5_000];

fn show(name: &str, ahead: u64, mut late: Vec<Duration>) {
    late.sort_unstable();
    let at = |share: f64| {
        let index = (late.len() as f64 * share) as usize;
        late.get(index.min(late.len().saturating_sub(1)))
            .map_or(0.0, |it| it.as_secs_f64() * 1e6)
    };
    println!(
        "{name:<28} {ahead:>6} us ahead: late p50 {:>7.1} us, p90 {:>7.1}, p99 {:>7.1}, max {:>8.1}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}

fn main() -> std::io::Result<()> {
    let waits: u64 = std::env::args()
        .nth(1)
        .and_then(|it| it.parse().ok())
        .unwrap_or(500);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for ahead in AHEAD_US {
        let next = || Instant::now() + Duration::from_micros(ahead);
        let late = runtime.block_on(async {
            let mut late = Vec::new();
            for _ in 0..waits {
                let at = next();
                tokio::time::sleep_until(at).await;
                late.push(at.elapsed());
            }
            late
        });
        show("tokio::time::sleep_until", ahead, late);
        for spin in [0, 20, 50, 100, 200] {
            let spin_time = Duration::from_micros(spin);
            let late = runtime.block_on(async {
                let mut alarm = FineAlarm::new(spin_time)?;
                let mut late = Vec::new();
                for _ in 0..waits {
                    let at = next();
                    alarm.set(Some(at));
                    alarm.rings().await;
                    late.push(at.elapsed());
                }
                Ok::<_, std::io::Error>(late)
            })?;
            show(&format!("FineAlarm, spin {spin} us"), ahead, late);
            let late = (0..waits).map(|_| {
                let at = next();
                sleep_until(at, spin_time);
                at.elapsed()
            });
            show(
                &format!("sleep_until, spin {spin} us"),
                ahead,
                late.collect(),
            );
        }
    }
    Ok(())
}
