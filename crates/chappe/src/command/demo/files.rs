//! The files of the demonstration, embedded in the program.

use std::path::{Path, PathBuf};

use crate::output::{self, Failure};

macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../../demo/", $path)))),+]
    };
}

/// Every file by its path below `demo/`.
const FILES: &[(&str, &str)] = files![
    "devices/anemometer.toml",
    "devices/carbon-dioxide-analyser.toml",
    "devices/electrocardiograph.toml",
    "devices/motion-sensor.toml",
    "devices/plethysmograph.toml",
    "devices/rain-gauge.toml",
    "devices/thermometer.toml",
    "recordings/air_temperature.csv",
    "recordings/carbon_dioxide.csv",
    "recordings/electrocardiogram.csv",
    "recordings/motion.csv",
    "recordings/precipitation.csv",
    "recordings/pulse.csv",
    "recordings/wind.csv",
    "sensors/air-temperature-mean.toml",
    "sensors/heart-rate.toml",
    "spare/electrocardiograph.toml",
];

/// Writes the files below `folder` that are not there yet; returns the descriptions of devices.
pub(crate) fn write(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut devices = Vec::new();
    for (name, text) in FILES {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            output::folder(parent)?;
        }
        // What the user has changed stays: the next demonstration with this directory shows it.
        if !path.exists() {
            std::fs::write(&path, text).map_err(|error| output::refused("write", &path, &error))?;
        }
        if name.starts_with("devices/") {
            devices.push(path);
        }
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_stays() {
        let folder = tempfile::tempdir().expect("a directory");
        let devices = write(folder.path()).expect("written");
        std::fs::write(&devices[0], "changed").expect("written");
        std::fs::remove_file(&devices[1]).expect("removed");
        assert_eq!(write(folder.path()).expect("written"), devices);
        let text = |path: &Path| std::fs::read_to_string(path).expect("read");
        assert_eq!(text(&devices[0]), "changed");
        assert_ne!(text(&devices[1]), "");
    }

    #[test]
    fn every_demo_file_is_embedded() {
        let mut present = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo");
        for folder in std::fs::read_dir(&root).expect("demo/ exists").flatten() {
            for file in std::fs::read_dir(folder.path())
                .expect("demo/ has directories of files")
                .flatten()
            {
                let path = file.path();
                present.push(
                    path.strip_prefix(&root)
                        .expect("below")
                        .to_string_lossy()
                        .into_owned(),
                );
            }
        }
        present.sort();
        let listed: Vec<_> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(present, listed);
    }
}
