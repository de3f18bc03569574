//! Goal: the registry on a durable log equals its journal whatever the moment of a power loss:
//! acknowledged changes exist, no change is applied partly, and an interrupted compaction loses
//! nothing.
//! Method: a workload of publications, removals and compactions runs once for each boundary of the
//! simulated disk with the power cut there; from each cut the disk is drawn, opened, and compared
//! with the model after as many changes as the journal holds.

use std::collections::BTreeMap;

use chappe_log::{Level, Options, Store};
use chappe_registry::oxrdf::{Literal, NamedNode, Triple};
use chappe_registry::{Entity, EntityKind, LogJournal, Principal, Registry, Search, vocabulary};
use chappe_sim::SimDisk;

type Model = BTreeMap<String, Entity>;

fn open(disk: &SimDisk, seed: u64) -> Result<(Store, Registry), String> {
    let options = Options {
        segment_bytes: 4096,
        ..Options::default()
    };
    let opened = Store::open(Box::new(disk.clone()), options, seed);
    let (store, _) = opened.map_err(|error| error.to_string())?;
    let stream = match store.existing("registry") {
        Some(stream) => stream,
        None => store
            .stream("registry", Level::Power, b"")
            .map_err(|error| error.to_string())?,
    };
    let registry = Registry::open(LogJournal::new(stream, || 0));
    Ok((store, registry.map_err(|error| error.to_string())?))
}

fn entity(number: u64, step: u64) -> Entity {
    let key = format!("urn:e:{number}");
    let mut entity = Entity::new(key.as_str(), EntityKind::Device, format!("step {step}"));
    let text = Literal::new_simple_literal(format!("{step:0>200}"));
    let subject = NamedNode::new(key).unwrap();
    entity.triples.push(Triple::new(
        subject,
        vocabulary::RDFS_COMMENT.into_owned(),
        text,
    ));
    entity
}

/// The acknowledged changes, and the model after each change offered.
#[derive(Default)]
struct History {
    acknowledged: usize,
    /// The model after 0, 1, 2 ... changes.
    states: Vec<Model>,
}

/// Runs until the disk's power is cut; each change waits for its acknowledgement.
fn workload(disk: &SimDisk, seed: u64) -> History {
    let mut history = History {
        acknowledged: 0,
        states: vec![Model::new()],
    };
    let Ok((store, registry)) = open(disk, seed) else {
        return history;
    };
    for step in 0..24_u64 {
        if step % 9 == 8 && registry.compact().is_err() {
            break;
        }
        let number = (step * 7 + seed) % 5;
        let mut model = history.states.last().cloned().unwrap_or_default();
        let change = if step % 4 == 3 && model.remove(&format!("urn:e:{number}")).is_some() {
            registry.remove(&format!("urn:e:{number}"))
        } else {
            let entity = entity(number, step);
            model.insert(entity.key.clone(), entity.clone());
            registry.publish(entity)
        };
        history.states.push(model);
        if change.and_then(|change| change.wait()).is_err() {
            break;
        }
        history.acknowledged = history.states.len() - 1;
    }
    drop(registry);
    let _ = store.close();
    history
}

fn everything(registry: &Registry) -> Model {
    let all = Search {
        limit: Some(1_000),
        ..Search::default()
    };
    let found = registry.search(&all, &Principal::Operator);
    found
        .entities
        .into_iter()
        .map(|entity| (entity.key.clone(), entity))
        .collect()
}

#[test]
fn power_loss_at_every_boundary() {
    let (mut cuts, mut images) = (0, 0);
    for seed in 1..=2 {
        let whole = SimDisk::new(seed);
        let complete = workload(&whole, seed);
        assert_eq!(complete.acknowledged, 24);
        let begun = |name: &String| name == "0000000001.segment";
        assert!(!whole.names().iter().any(begun), "nothing was forgotten");
        for boundary in 0..=whole.boundaries() {
            let disk = SimDisk::new(seed * 1_000 + boundary);
            disk.cut_power_at(boundary);
            let history = workload(&disk, seed);
            cuts += u64::from(disk.is_off());
            for image in 0..3 {
                let found = disk.crash(boundary << 8 | image);
                let (store, registry) = open(&found, image).unwrap();
                let state = everything(&registry);
                // At least what was acknowledged; at most one more, which was on its way.
                let possible = history
                    .states
                    .get(history.acknowledged..)
                    .unwrap_or_default();
                assert!(
                    possible.contains(&state),
                    "seed {seed} boundary {boundary} image {image}: {} entities, {} acknowledged",
                    state.len(),
                    history.acknowledged
                );
                // It goes on from there.
                registry.publish(entity(9, 99)).unwrap().wait().unwrap();
                drop(registry);
                store.close().unwrap();
                let (_store, registry) = open(&found, image + 7).unwrap();
                assert_eq!(everything(&registry).len(), state.len() + 1);
                images += 1;
            }
        }
    }
    assert!(cuts > 60 && images > 200, "{cuts} cuts, {images} images");
}
