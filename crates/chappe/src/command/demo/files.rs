//! The files of the demonstration, embedded in the program.

use std::path::{Path, PathBuf};

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

/// Writes the files below `folder`; returns the descriptions of devices.
pub(crate) fn write(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut devices = Vec::new();
    for (name, text) in FILES {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, text)?;
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
