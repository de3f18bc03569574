//! A memory cgroup with a limit, of version 1 or 2, whichever the machine has.

use std::path::{Path, PathBuf};

use crate::Error;

/// A group with a memory limit; removed once its last process has ended.
pub(crate) struct MemoryGroup {
    folder: PathBuf,
    names: &'static Names,
}

/// The files of a version.
struct Names {
    limit: &'static str,
    swap: Option<&'static str>,
    peak: &'static str,
}

const VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    swap: None,
    peak: "memory.max_usage_in_bytes",
};
const VERSION_2: Names = Names {
    limit: "memory.max",
    swap: Some("memory.swap.max"),
    peak: "memory.peak",
};

impl MemoryGroup {
    /// Creates a group of at most `bytes` below the one of this process.
    ///
    /// # Errors
    /// The machine has no memory groups, or creating one is not permitted: a reason to skip, not a
    /// failure.
    pub(crate) fn new(bytes: u64) -> Result<Self, Error> {
        let reading = Error::io("reading /proc/self/cgroup");
        let own = std::fs::read_to_string("/proc/self/cgroup").map_err(reading)?;
        let root = Path::new("/sys/fs/cgroup");
        let version_1 = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let memory = parts.next()?.split(',').any(|one| one == "memory");
            memory.then(|| parts.next().unwrap_or_default())
        });
        let version_2 = own.lines().find_map(|line| line.strip_prefix("0::"));
        let (parent, names) = match (version_1, version_2) {
            (Some(path), _) => (below(&root.join("memory"), path), &VERSION_1),
            (None, Some(path)) => (below(root, path), &VERSION_2),
            (None, None) => {
                let what = "this machine has no memory cgroup";
                return Err(Error::Failed(what.to_owned()));
            }
        };
        let folder = parent.join(format!("chappe-lab-{}", std::process::id()));
        let failed = Error::io(format!("making the cgroup {}", folder.display()));
        std::fs::create_dir(&folder).map_err(failed)?;
        let group = Self { folder, names };
        group.write(names.limit, &bytes.to_string())?;
        if let Some(swap) = names.swap.filter(|swap| group.folder.join(swap).exists()) {
            group.write(swap, "0")?;
        }
        Ok(group)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
    }

    /// The file to which a process id is written to add that process.
    pub(crate) fn members(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Peak memory of the group in bytes, including page cache, if the kernel counts it.
    pub(crate) fn peak(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.folder.join(self.names.peak)).ok()?;
        text.trim().parse().ok()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// The group's folder; the hierarchy's root when a namespace hides it.
fn below(root: &Path, path: &str) -> PathBuf {
    let folder = root.join(path.trim_start_matches('/'));
    if folder.is_dir() {
        folder
    } else {
        root.to_owned()
    }
}
