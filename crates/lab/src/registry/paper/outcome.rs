//! The report: tables 1 to 4, figures 2 to 10, and the targets.

use std::fmt::Write as _;

use super::java::JenaPoint;
use super::tables::{Table, figure};
use super::under_test::Point;
use super::{Outcome, Part, TABLE, service};
use crate::{Limit, Reference, Report};

/// A curve: services and a value.
type Curve = Vec<(f64, f64)>;

/// The largest memory of a service in bytes, whose ratio is 1.
const SERVICE_BYTES: f64 = 12_000.0;

fn curve_of(points: &Part<Vec<Point>>, of: impl Fn(&Point) -> f64) -> Curve {
    let points = points.as_deref().unwrap_or_default();
    points
        .iter()
        .map(|point| (point.services as f64, of(point)))
        .collect()
}

fn pairs(points: &[(usize, f64)]) -> Curve {
    points
        .iter()
        .map(|(services, value)| (*services as f64, *value))
        .collect()
}

fn jena_curve(points: &Part<Vec<JenaPoint>>, of: impl Fn(&JenaPoint) -> Option<f64>) -> Curve {
    let points = points.as_deref().unwrap_or_default();
    let value = |point: &JenaPoint| Some((point.services as f64, of(point)?));
    points.iter().filter_map(value).collect()
}

/// The value at the tables' number of services, or at the largest below.
fn at(curve: &[(f64, f64)]) -> Option<f64> {
    let below = curve
        .iter()
        .rfind(|(services, _)| *services <= TABLE as f64);
    below.map(|(_, value)| *value)
}

impl Outcome {
    pub(super) fn report(&self, report: &mut Report) {
        let soap = self.semantic.as_ref().map(|it| it.points.clone());
        let soap = soap.map_err(Clone::clone);
        let all = [
            ("library", &self.library),
            ("SOAP", &soap),
            ("jUDDI", &self.juddi),
        ];
        self.skipped(report);
        if let Some(fdatasync) = at(&curve_of(&soap, Point::floor_ms)) {
            let note = "floor: 4 KiB appended and synced, after each publication over SOAP";
            report.row("fdatasync", fdatasync, "ms", note);
        }
        for (name, points) in all {
            let services = points.as_deref().ok().and_then(<[_]>::last);
            let note = format!("of 100; {} services", services.map_or(0, |it| it.services));
            for (what, of) in [
                ("publish", Point::publish_ms as fn(&Point) -> f64),
                ("inquire", Point::inquire_ms),
            ] {
                let curve = curve_of(points, of);
                if let (Some(table), Some((_, last))) = (at(&curve), curve.last()) {
                    let name = format!("{name}: {what}");
                    report.row(&name, table, "ms", "at the tables' services");
                    report.row(&format!("{name}, at the end"), *last, "ms", note.clone());
                }
            }
        }
        self.tables(&soap, report);
        self.curves(&soap, report);
        self.raw(&soap, report);
        self.latency_targets(&soap, report);
        self.semantic_targets(report);
        self.memory_targets(report);
        self.peer_targets(report);
    }

    /// Peers that could not run are skipped; parts of ours that failed miss a target.
    fn skipped(&self, report: &mut Report) {
        let ours = [
            ("library", self.library.as_ref().err()),
            ("SOAP", self.semantic.as_ref().err()),
            ("signed messages", self.signed.as_ref().err()),
            ("memory of a node", self.memory.as_ref().err()),
            ("snapshots", self.snapshots.as_ref().err()),
            ("bare cryptography", self.cryptography_ms.as_ref().err()),
        ];
        let levels = self
            .levels
            .iter()
            .map(|(name, part)| (*name, part.as_ref().err()));
        for (name, error) in ours.into_iter().chain(levels) {
            if let Some(error) = error {
                report.failed(name, &crate::Error::Failed(error.clone()));
            }
        }
        let peers = [
            ("jUDDI", self.juddi.as_ref().err()),
            ("Jena in memory", self.jena[0].1.as_ref().err()),
            ("Jena on TDB2", self.jena[1].1.as_ref().err()),
            ("PostgreSQL", self.postgres.as_ref().err()),
        ];
        for (name, reason) in peers {
            if let Some(reason) = reason {
                report.skipped.push(format!("{name}: {reason}"));
            }
        }
    }

    fn tables(&self, soap: &Part<Vec<Point>>, report: &mut Report) {
        let publish = |points: &Part<Vec<Point>>| at(&curve_of(points, Point::publish_ms));
        let inquire = |points: &Part<Vec<Point>>| at(&curve_of(points, Point::inquire_ms));
        let both =
            |table: &mut Table, name: &str, paper: [Option<f64>; 2], ours: [Option<f64>; 2]| {
                table.row(name, "publish", paper[0], ours[0]);
                table.row(name, "inquire", paper[1], ours[1]);
            };
        let mut one = Table::default();
        for (name, paper, points) in [
            ("SOAP", [37.8, 56.9], soap),
            ("business logic", [13.2, 40.2], &self.library),
            ("jUDDI", [226.3, 38.0], &self.juddi),
        ] {
            both(
                &mut one,
                name,
                paper.map(Some),
                [publish(points), inquire(points)],
            );
        }
        one.into(report, "table-1");

        let mut two = Table::default();
        let of = |points| [publish(points), inquire(points)];
        both(
            &mut two,
            "memory",
            [13.2, 40.2].map(Some),
            of(&self.library),
        );
        for (level, points) in &self.levels {
            let paper = match *level {
                "power" => [62.4, 42.7].map(Some),
                _ => [None; 2],
            };
            both(&mut two, &format!("file, level {level}"), paper, of(points));
        }
        let shared = self.postgres.as_ref().map(|it| it.points.clone());
        let shared = shared.map_err(Clone::clone);
        both(
            &mut two,
            "PostgreSQL, over SOAP",
            [37_066.0, 2_173.0].map(Some),
            of(&shared),
        );
        both(
            &mut two,
            "Berkeley DB",
            [5_920.0, 6_862.0].map(Some),
            [None; 2],
        );
        for (name, points) in &self.jena {
            let ours = [
                at(&jena_curve(points, |it| Some(it.publish_ms))),
                at(&jena_curve(points, |it| Some(it.inquire_ms))),
            ];
            both(&mut two, &format!("Jena {name}"), [None; 2], ours);
        }
        two.into(report, "table-2");

        let mut three = Table::default();
        if let Ok([plain, signed]) = &self.signed {
            let (plain, signed) = (Ok(plain.clone()), Ok(signed.clone()));
            both(
                &mut three,
                "signed",
                [1_532.0, 987.0].map(Some),
                of(&signed),
            );
            both(&mut three, "unsigned", [88.3, 98.9].map(Some), of(&plain));
        }
        three.into(report, "table-3");

        let mut four = Table::default();
        if let Ok(semantic) = &self.semantic {
            let by_metadata = at(&pairs(&semantic.by_metadata));
            four.row(
                "publish WSDL",
                "addWSDLFile",
                Some(33.5),
                at(&pairs(&semantic.wsdl)),
            );
            let advert = semantic.rows.first().map(|(_, value)| *value);
            four.row("publish service", "addWSDLFileAdvert", Some(31.2), advert);
            for (index, (name, call, paper)) in [
                ("attach", "addMetadataToEntity", 11.7),
                ("update", "addMetadataToEntity", 12.3),
                ("delete", "deleteMetadata", 9.1),
            ]
            .into_iter()
            .enumerate()
            {
                four.row(
                    name,
                    call,
                    Some(paper),
                    Some(semantic.pieces[0].steps[index]),
                );
            }
            four.row(
                "inquiry by metadata",
                "find_service",
                Some(80.5),
                by_metadata,
            );
        }
        four.into(report, "table-4");
    }

    fn curves(&self, soap: &Part<Vec<Point>>, report: &mut Report) {
        let named = |name: &str, curve: Curve| (name.to_owned(), curve);
        let both = |of: fn(&Point) -> f64| {
            vec![
                named("SOAP", curve_of(soap, of)),
                named("library", curve_of(&self.library, of)),
                named("jUDDI", curve_of(&self.juddi, of)),
            ]
        };
        let ms = "ms";
        let two = both(Point::publish_ms);
        figure(
            report,
            "figure-2",
            "Publication of a service, medians of 100",
            ms,
            &two,
        );
        let mut three = both(Point::inquire_ms);
        let semantic = self.semantic.as_ref().ok();
        let by_metadata = semantic
            .map(|it| pairs(&it.by_metadata))
            .unwrap_or_default();
        three.push(named("SOAP, by metadata", by_metadata));
        figure(
            report,
            "figure-3",
            "Inquiry of a service, medians of 100",
            ms,
            &three,
        );

        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let resident = |points: &Part<Vec<Point>>| {
            curve_of(points, |point| mib(point.resident.unwrap_or(0) as f64))
        };
        let memory = self.memory.as_deref().unwrap_or_default();
        let memory = memory
            .iter()
            .map(|(services, bytes)| (*services as f64, mib(*bytes)));
        let heap = |index: usize| jena_curve(&self.jena[index].1, |point| point.heap.map(mib));
        let four = vec![
            named("node, less an empty one", memory.collect()),
            named("jUDDI, resident", resident(&self.juddi)),
            named("Jena memory, heap", heap(0)),
            named("Jena TDB2, heap", heap(1)),
        ];
        figure(report, "figure-4", "Memory", "MiB", &four);

        if let Ok(snapshots) = &self.snapshots {
            let five = vec![
                named("without a snapshot", pairs(&snapshots.without)),
                named("during a snapshot", pairs(&snapshots.during)),
                named("the snapshot itself", pairs(&snapshots.snapshot)),
            ];
            let title = "The longest change of each hundred publications";
            figure(report, "figure-5", title, ms, &five);
        }
        for (name, title, of) in [
            (
                "figure-6",
                "Publication by store",
                Point::publish_ms as fn(&Point) -> f64,
            ),
            ("figure-7", "Inquiry by store", Point::inquire_ms),
        ] {
            let mut series = vec![named("memory", curve_of(&self.library, of))];
            for (level, points) in &self.levels {
                series.push(named(&format!("file, {level}"), curve_of(points, of)));
            }
            let shared = self.postgres.as_ref().map(|it| it.points.clone());
            let shared = shared.map_err(Clone::clone);
            series.push(named("PostgreSQL, SOAP", curve_of(&shared, of)));
            for (store, points) in &self.jena {
                let value = |it: &JenaPoint| match name {
                    "figure-6" => Some(it.publish_ms),
                    _ => Some(it.inquire_ms),
                };
                series.push(named(&format!("Jena {store}"), jena_curve(points, value)));
            }
            figure(report, name, title, ms, &series);
        }
        if let Ok([plain, signed]) = &self.signed {
            let (plain, signed) = (Ok(plain.clone()), Ok(signed.clone()));
            for (name, title, of) in [
                (
                    "figure-8",
                    "Publication, signed and not",
                    Point::publish_ms as fn(&Point) -> f64,
                ),
                ("figure-9", "Inquiry, signed and not", Point::inquire_ms),
            ] {
                let series = vec![
                    named("signed", curve_of(&signed, of)),
                    named("unsigned", curve_of(&plain, of)),
                ];
                figure(report, name, title, ms, &series);
            }
        }
        if let Some(semantic) = semantic {
            let step = |index: usize| {
                curve_of(soap, move |point| {
                    let times: Vec<_> = point.steps.iter().map(|steps| steps[index]).collect();
                    Point::median(&times)
                })
            };
            let ten = vec![
                named("save_business", step(0)),
                named("save_tModel", step(1)),
                named("save_service", step(2)),
                named("addMetadataToEntity", pairs(&semantic.attach)),
                named("addWSDLFile", pairs(&semantic.wsdl)),
            ];
            figure(
                report,
                "figure-10",
                "Steps of a semantic publication",
                ms,
                &ten,
            );
        }
    }

    /// Each publication and inquiry over SOAP, at the library, and of jUDDI.
    fn raw(&self, soap: &Part<Vec<Point>>, report: &mut Report) {
        let mut csv =
            "registry,services,publish_ms,inquire_ms,longest_ms,resident_bytes\n".to_owned();
        let all = [
            ("SOAP", soap),
            ("library", &self.library),
            ("jUDDI", &self.juddi),
        ];
        for (name, points) in all {
            for point in points.as_deref().unwrap_or_default() {
                let (publish, inquire) = (point.publish_ms(), point.inquire_ms());
                let (longest, resident) = (point.longest_ms(), point.resident.unwrap_or(0));
                let services = point.services;
                let _ = writeln!(
                    csv,
                    "{name},{services},{publish:.4},{inquire:.4},{longest:.4},{resident}"
                );
            }
        }
        report.tables.insert("paper-points".to_owned(), csv);
    }

    fn latency_targets(&self, soap: &Part<Vec<Point>>, report: &mut Report) {
        let peer = |of: fn(&Point) -> f64| match &self.juddi {
            Ok(_) => {
                let value = at(&curve_of(&self.juddi, of));
                value
                    .map(|value| Reference::new("jUDDI", value))
                    .ok_or("jUDDI: no points".to_owned())
            }
            Err(reason) => Err(format!("jUDDI: {reason}")),
        };
        let publish = at(&curve_of(soap, Point::publish_ms));
        let floor = at(&curve_of(soap, Point::floor_ms));
        if let (Some(publish), Some(floor)) = (publish, floor) {
            let floor = 3.0 * floor + 0.2;
            let floor = Reference::new("3 fdatasync + 0.2 ms", floor);
            report.target(
                "publish over SOAP",
                (publish, "ms"),
                floor,
                Limit::AtMost(1.0),
            );
            let measured = (publish, "ms");
            let theirs = peer(Point::publish_ms);
            report.compare("publish over SOAP", measured, theirs, Limit::AtMost(0.2));
        }
        if let Some(inquire) = at(&curve_of(soap, Point::inquire_ms)) {
            let theirs = peer(Point::inquire_ms);
            report.compare(
                "inquire over SOAP",
                (inquire, "ms"),
                theirs,
                Limit::AtMost(0.2),
            );
        }
    }

    fn semantic_targets(&self, report: &mut Report) {
        let Ok(semantic) = &self.semantic else {
            return;
        };
        let bound = Reference::new("0.1 ms", 0.1);
        let processor = (semantic.processor_ms, "ms");
        let name = "processor of the server for an inquiry";
        report.target(name, processor, bound, Limit::AtMost(1.0));
        let [rare_first, rare_last, by_name] = semantic.orders;
        report.row("inquiry by name, p50", by_name, "ms", "with all services");
        for (name, value) in [
            ("inquiry by metadata, the rare piece first", rare_first),
            ("inquiry by metadata, the rare piece last", rare_last),
        ] {
            report.row(&format!("{name}, p50"), value, "ms", "with all services");
            let reference = Reference::new("by name", by_name);
            report.target(name, (value, "ms"), reference, Limit::AtMost(1.4));
        }
        let many = format!("{} pieces", self.sizes.pieces);
        for (pieces, measured) in ["one piece", &many].into_iter().zip(&semantic.pieces) {
            let note = format!("floor, with {pieces} on the entity");
            report.row("fdatasync between", measured.fdatasync, "ms", note);
            let steps = ["attach", "update", "delete"].into_iter();
            for (step, value) in steps.zip(measured.steps) {
                let name = format!("{step}, {pieces} on the entity");
                report.row(&format!("{name}, p50"), value, "ms", "over SOAP");
                let floor = Reference::new("fdatasync + 0.1 ms", measured.fdatasync + 0.1);
                report.target(name, (value, "ms"), floor, Limit::AtMost(1.0));
            }
        }
    }

    fn memory_targets(&self, report: &mut Report) {
        if let Ok(memory) = &self.memory
            && let Some((services, bytes)) = memory.last()
        {
            let each = bytes / *services as f64;
            let note = format!("{} triples; of {services}", service::TRIPLES);
            report.row("a service, resident in a node", each, "B", note);
            let reference = Reference::new("12 kB", SERVICE_BYTES);
            report.target(
                "memory of a service",
                (each, "B"),
                reference,
                Limit::AtMost(1.0),
            );
        }
    }

    fn peer_targets(&self, report: &mut Report) {
        if let Ok(snapshots) = &self.snapshots {
            let longest =
                |points: &[(usize, f64)]| points.iter().map(|it| it.1).fold(0.0, f64::max);
            let (during, without) = (longest(&snapshots.during), longest(&snapshots.without));
            report.row(
                "longest change during a snapshot",
                during,
                "ms",
                "of all hundreds",
            );
            report.row(
                "longest change without one",
                without,
                "ms",
                "of all hundreds",
            );
            let reference = Reference::new("without one + 50 ms", without + 50.0);
            let name = "longest change during a snapshot";
            report.target(name, (during, "ms"), reference, Limit::AtMost(1.0));
        }
        if let (Ok([plain, signed]), Ok(bare)) = (&self.signed, &self.cryptography_ms) {
            report.row(
                "cryptography of a message",
                *bare,
                "ms",
                "floor: RSA 2,048, a chain of two",
            );
            let (plain, signed) = (Ok(plain.clone()), Ok(signed.clone()));
            let fdatasync = at(&curve_of(&signed, Point::floor_ms)).unwrap_or_default();
            for (what, calls, of) in [
                ("publish", 3.0, Point::publish_ms as fn(&Point) -> f64),
                ("inquire", 2.0, Point::inquire_ms),
            ] {
                let (plain, signed) = (at(&curve_of(&plain, of)), at(&curve_of(&signed, of)));
                let (Some(plain), Some(signed)) = (plain, signed) else {
                    continue;
                };
                // A request and its answer; the request is remembered on the disk.
                let message = (signed - plain) / (2.0 * calls);
                let bound = 1.3 * bare + 0.05 + fdatasync / 2.0;
                let name = "1.3 x cryptography + 0.05 ms + half an fdatasync";
                let reference = Reference::new(name, bound);
                let name = format!("a signature, in a signed {what}");
                report.target(name, (message, "ms"), reference, Limit::AtMost(1.0));
            }
        }
        let Ok(shared) = &self.postgres else {
            return;
        };
        let note = "floor: 4 KiB inserted, one client of pgbench";
        report.row("PostgreSQL transaction", shared.transaction_ms, "ms", note);
        let points = Ok(shared.points.clone());
        if let Some(publish) = at(&curve_of(&points, Point::publish_ms)) {
            report.row("publish, PostgreSQL", publish, "ms", "over SOAP");
            let reference = Reference::new("3 transactions", 3.0 * shared.transaction_ms);
            let name = "publish, PostgreSQL";
            report.target(name, (publish, "ms"), reference, Limit::AtMost(1.5));
        }
        let [median, high] = shared.visible_ms;
        report.row("visible at the other node, p50", median, "ms", "");
        report.row("visible at the other node, p99", high, "ms", "");
        let reference = Reference::new("100 ms", 100.0);
        let name = "visible at the other node, p99";
        report.target(name, (high, "ms"), reference, Limit::AtMost(1.0));
    }
}
