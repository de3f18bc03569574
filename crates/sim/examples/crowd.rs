//! The cost of a crowd: nodes that pass small messages on at random, and the network's memory and
//! time for them.
//!
//! `cargo run --release -p chappe-sim --example crowd -- [nodes] [messages a node]`

use std::time::{Duration, Instant as Wall};

use chappe_sim::network::{Latency, Link, Network, Step};

fn argument<T: std::str::FromStr>(nth: usize, default: T) -> T {
    let given = std::env::args().nth(nth);
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Resident memory in bytes; 0 if the system does not report it.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|it| it.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

fn main() {
    let (count, each) = (argument(1, 100_000_u32), argument(2, 10_u32));
    let link = Link {
        latency: Latency::Tail(Duration::from_millis(20), Duration::from_millis(10)),
        loss: 0.01,
        ..Link::default()
    };
    let mut network = Network::new(1, link);
    let before = resident();
    let nodes: Vec<_> = (0..count).map(|_| network.add_node()).collect();
    let with_nodes = resident();
    let mut random = fastrand::Rng::with_seed(1);
    let mut next = || nodes[random.usize(..nodes.len())];
    // A message is the number of times that it is still passed on.
    for node in &nodes {
        network.send(*node, next(), 100, each);
    }
    let waiting = resident();
    let begin = Wall::now();
    let mut steps = 0_u64;
    while let Some(step) = network.next(network.now() + Duration::from_secs(1)) {
        steps += 1;
        if let Step::Arrived { node, payload, .. } = step
            && payload > 0
        {
            network.send(node, next(), 100, payload - 1);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let per = |bytes: u64| bytes as f64 / f64::from(count);
    println!(
        "{count} nodes: {:.0} bytes a node, {:.0} bytes a waiting message",
        per(with_nodes - before),
        per(waiting - with_nodes)
    );
    println!(
        "{steps} messages arrived in {seconds:.2} s ({:.0}/s), {:.1} s simulated",
        steps as f64 / seconds,
        (network.now() - chappe_machine::Instant::ZERO).as_secs_f64()
    );
}
