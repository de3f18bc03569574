//! The largest registry of a node: many clients at once, one client at the end, and the start with all of it.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use super::node::{Node, NodeStore};
use super::soap::{Connection, Soap};
use super::under_test::{UnderTest as _, inquiries, publish};
use super::{Bench, STEP, TABLE, median_ms};
use crate::{Error, Limit, Reference, Report, timing};

/// Clients at once.
pub(super) const CLIENTS: usize = 16;

/// What was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Large {
    /// Services, publication and inquiry of one client in ms: at the tables' size, and with all.
    pub(super) points: [(usize, f64, f64); 2],
    /// Services a second of one client, and of sixteen.
    pub(super) rates: [f64; 2],
    /// Syncs of the log for a service with sixteen clients.
    pub(super) syncs: f64,
    /// Seconds until a node with all services is ready.
    pub(super) opened_s: f64,
    /// Resident bytes of that node.
    pub(super) resident: f64,
    /// Seconds until the facets of all entities are counted, over REST, and of those of one kind.
    pub(super) facets_s: [f64; 2],
}

impl Large {
    /// The rows and the targets.
    pub(super) fn report(&self, report: &mut Report) {
        let [few, many] = self.points;
        for (what, few, many, count) in [
            ("publish", few.1, many.1, many.0),
            ("inquire", few.2, many.2, many.0),
        ] {
            let name = format!("{what} over SOAP with {count} services");
            report.row(&format!("{name}, p50"), many, "ms", "");
            let reference = Reference::new("with few", few);
            report.target(name, (many, "ms"), reference, Limit::AtMost(1.3));
        }
        let [one, sixteen] = self.rates;
        let note = "published over SOAP";
        report.row("services a second, 1 client", one, "1/s", note);
        let name = format!("services a second, {CLIENTS} clients");
        report.row(&name, sixteen, "1/s", note);
        let reference = Reference::new("1 client", one);
        report.target(name, (sixteen, "1/s"), reference, Limit::AtLeast(3.0));
        let name = format!("fdatasync for a service, {CLIENTS} clients");
        let reference = Reference::new("services", 1.0);
        report.target(name, (self.syncs, "1"), reference, Limit::AtMost(1.0));
        let note = format!(
            "{:.0} MiB resident then",
            self.resident / f64::from(1 << 20)
        );
        let name = format!("a node with {} services is ready", many.0);
        report.row(&name, self.opened_s, "s", note);
        let reference = Reference::new("15 s", 15.0);
        report.target(name, (self.opened_s, "s"), reference, Limit::AtMost(1.0));
        for (entities, value) in ["all entities", "services"].into_iter().zip(self.facets_s) {
            let name = format!("facets of {entities}, {} services", many.0);
            report.row(&name, value, "s", "over REST");
            let reference = Reference::new("1 s", 1.0);
            report.target(name, (value, "s"), reference, Limit::AtMost(1.0));
        }
    }
}

/// Seconds of a request for facets, the median of five.
fn facets_s(node: &Node, criteria: &str) -> Result<f64, Error> {
    let fields = format!("Authorization: Bearer {}\r\n", node.token);
    let path = format!("/api/v1/entities?facets=50&limit=1{criteria}");
    let mut connection = Connection::open(&node.address.host)?;
    let times = timing::each(5, |_| {
        connection.request("GET", &path, &fields, "").map(drop)
    })?;
    Ok(median_ms(&times) / 1e3)
}

/// Publishes services by sixteen clients at once.
pub(super) fn fill(client: &Soap, numbers: Range<usize>) -> Result<(), Error> {
    let next = AtomicUsize::new(numbers.start);
    let (next, end) = (&next, numbers.end);
    thread::scope(|scope| {
        let mut running = Vec::with_capacity(CLIENTS);
        for _ in 0..CLIENTS {
            let mut client = client.another()?;
            running.push(scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        return Ok(());
                    }
                    publish(&mut client, number)?;
                }
            }));
        }
        running.into_iter().try_for_each(|client| {
            let panicked = |_| Err(Error::Failed("a client panicked".to_owned()));
            client.join().unwrap_or_else(panicked)
        })
    })
}

impl Bench<'_> {
    /// Times of one client at the end of a registry of so many services.
    fn one_client(
        &mut self,
        client: &mut Soap,
        services: usize,
    ) -> Result<(usize, f64, f64), Error> {
        let mut times = Vec::new();
        for number in services..services + STEP {
            times.push(publish(client, number)?.1.iter().sum());
        }
        let asked = inquiries(client, services, self.sizes.repeats, &mut self.random)?;
        Ok((services, median_ms(&times), median_ms(&asked)))
    }

    pub(super) fn large(&mut self) -> Result<Large, Error> {
        let folder = self.subfolder("large")?;
        let (all, first) = (self.sizes.large, TABLE.min(self.sizes.large / 2));
        let mut measured = Large::default();
        {
            let node = Node::start(&self.program, &folder, &NodeStore::Log, false)?;
            let mut client = node.client()?;
            let start = Instant::now();
            for number in 0..STEP {
                publish(&mut client, number)?;
            }
            measured.rates[0] = STEP as f64 / start.elapsed().as_secs_f64();
            let (start, syncs) = (Instant::now(), node.syncs()?);
            fill(&client, STEP..first)?;
            let services = (first - STEP) as f64;
            measured.rates[1] = services / start.elapsed().as_secs_f64();
            measured.syncs = (node.syncs()? - syncs) / services;
            measured.points[0] = self.one_client(&mut client, first)?;
            // In parts, so that progress is seen.
            let parts: Vec<usize> = (first + STEP..all).step_by(all / 10).collect();
            for from in parts {
                self.progress(&format!("the largest registry: {from} services"));
                fill(&client, from..(from + all / 10).min(all))?;
            }
            // The first connection is closed by now: the node waits for no client that says nothing.
            measured.points[1] = self.one_client(&mut node.client()?, all)?;
        }
        // It was killed; it starts again with what is in its log.
        let node = Node::start(&self.program, &folder, &NodeStore::Log, false)?;
        measured.opened_s = node.opened_in.as_secs_f64();
        measured.resident = node.resident()? as f64;
        node.client()?.inquire(&super::service::name_of(all - 1))?;
        measured.facets_s = [facets_s(&node, "")?, facets_s(&node, "&kind=service")?];
        Ok(measured)
    }
}
