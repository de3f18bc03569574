//! An interrupted run leaves nothing on the disk: the processes end with their input, foreign
//! programs with this one, and the folder is removed here.

use std::path::PathBuf;

/// Maximum number of attempts to remove the folder.
const TRIES: usize = 100;

/// Removes `folder` and ends this process when it receives a signal to end.
pub(crate) fn remove(folder: PathBuf) {
    std::thread::spawn(move || {
        let Ok(runtime) = chappe_node::runtime() else {
            return;
        };
        if runtime.block_on(chappe_node::shutdown_signal()).is_ok() {
            // Processes that still write there can make it fail; then it is retried.
            for _ in 0..TRIES {
                if std::fs::remove_dir_all(&folder).is_ok() {
                    break;
                }
            }
            // As a shell reports a program that SIGINT ended.
            std::process::exit(130);
        }
    });
}
