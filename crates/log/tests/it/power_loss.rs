//! Goal: whatever the moment of a power loss and the state of the disk after it, no acknowledged
//! record of level `Power` is lost, duplicated or wrong, no acknowledged number is reused, order is
//! kept, and trims remove only what they name.
//! Method: a workload over streams of all levels, with trims and the removals they cause, runs once
//! for each boundary (write, sync, change of names) of the run, with the power cut there; from each
//! cut several legal images of the disk are drawn, opened, judged against the acknowledgements,
//! written on, and cut and judged once more.

use crate::model::{Model, judge, workload};
use chappe_log::Level;
use chappe_sim::SimDisk;

fn boundaries(seed: u64, steps: u64) -> u64 {
    let disk = SimDisk::new(seed);
    let mut model = Model::default();
    assert!(workload(&disk, &mut model, seed, steps));
    assert!(model.removed > 1, "{} segments were removed", model.removed);
    disk.boundaries()
}

#[test]
fn power_loss_at_every_boundary() {
    const IMAGES: u64 = 6;
    let (mut images, mut cuts) = (0, 0);
    for seed in 1..=3 {
        for boundary in 0..=boundaries(seed, 25) + 4 {
            let disk = SimDisk::new(seed * 1000 + boundary);
            let mut model = Model::default();
            disk.cut_power_at(boundary);
            workload(&disk, &mut model, seed, 25);
            cuts += u64::from(disk.is_off());
            for image in 0..IMAGES {
                let image_seed = seed << 40 | boundary << 8 | image;
                let mut model = model.clone();
                let found = disk.crash(image_seed);
                judge(&found, &mut model, Level::Power, image_seed);
                images += 1;
                if image == 0 {
                    // Continue, lose power again later, judge again.
                    let again = disk.crash(image_seed);
                    let mut model = model.clone();
                    again.cut_power_at(boundary % 17);
                    workload(&again, &mut model, image_seed, 8);
                    judge(
                        &again.crash(image_seed),
                        &mut model,
                        Level::Power,
                        image_seed + 1,
                    );
                    images += 1;
                }
            }
        }
    }
    assert!(cuts > 100 && images > 1000, "{cuts} cuts, {images} images");
    println!("{cuts} cuts, {images} images recovered");
}

#[test]
fn a_kill_at_every_boundary_keeps_what_was_written() {
    for seed in 11..=12 {
        for boundary in 0..=boundaries(seed, 25) + 4 {
            let disk = SimDisk::new(seed * 1000 + boundary);
            let mut model = Model::default();
            disk.cut_power_at(boundary);
            workload(&disk, &mut model, seed, 25);
            let mut after = disk.kill();
            judge(&after, &mut model, Level::Process, boundary);
            workload(&after, &mut model, boundary, 5);
            after = after.kill();
            judge(&after, &mut model, Level::Process, boundary + 1);
        }
    }
}
