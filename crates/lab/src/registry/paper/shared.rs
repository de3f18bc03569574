//! Two nodes with one registry in PostgreSQL, and bare transactions of the same bytes.

use std::time::{Duration, Instant};

use super::node::{Node, NodeStore};
use super::under_test::{Point, UnderTest as _, point, publish};
use super::{Bench, Part, RECORD_BYTES, STEP, text};
use crate::percentile;
use crate::write::postgres;

/// Time between two looks for a service at the other node.
const LOOK: Duration = Duration::from_millis(1);
/// The longest time until it is there.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was measured.
pub(super) struct Postgres {
    /// Milliseconds of a bare transaction with the bytes of one request.
    pub(super) transaction_ms: f64,
    pub(super) points: Vec<Point>,
    /// Milliseconds until a service of one node is found at the other: median and 99th percentile.
    pub(super) visible_ms: [f64; 2],
}

impl Bench<'_> {
    /// The reason why there is none is a text.
    pub(super) fn postgres(&mut self) -> Part<Postgres> {
        let folder = self.subfolder("postgres").map_err(text)?;
        let server = postgres::Postgres::start(&folder)?;
        let host = server.folder().display();
        let store = NodeStore::Postgres(format!("postgres://postgres@/postgres?host={host}"));
        let start = |name: &str| {
            let folder = self.subfolder(name).map_err(text)?;
            Node::start(&self.program, &folder, &store, false).map_err(text)
        };
        let (one, other) = (start("postgres-one")?, start("postgres-other")?);
        let mut client = one.client().map_err(text)?;
        let services = self.sizes.signed;
        let (mut points, mut transactions) = (Vec::new(), Vec::new());
        for from in (0..services).step_by(STEP) {
            let (point, _) = point(&mut client, (from, STEP), &mut self.random).map_err(text)?;
            points.push(point);
            // Next to the publications, in the same state of the server and the disk.
            transactions.push(server.transaction_ms(RECORD_BYTES, STEP)?);
        }
        transactions.sort_by(f64::total_cmp);
        let middle = transactions.get(transactions.len() / 2).copied();
        let mut reader = other.client().map_err(text)?;
        let mut visible = Vec::new();
        for number in services..services + self.sizes.repeats {
            publish(&mut client, number).map_err(text)?;
            let start = Instant::now();
            while let Err(error) = reader.inquire(&super::service::name_of(number)) {
                if start.elapsed() > PATIENCE {
                    return Err(format!("a service is not at the other node: {error}"));
                }
                std::thread::sleep(LOOK);
            }
            visible.push(start.elapsed());
        }
        let mut at = |percent| percentile(&mut visible, percent).as_secs_f64() * 1e3;
        Ok(Postgres {
            transaction_ms: middle.unwrap_or_default(),
            points,
            visible_ms: [at(50.0), at(99.0)],
        })
    }
}
