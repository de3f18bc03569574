//! A disk in memory that loses unsynced data, fails on request, and fills up.
//!
//! The model: a file is sectors of 512 bytes. Writes go to the cache; a sync makes the dirty
//! sectors and the length durable. After a power loss each dirty sector is present, absent, or torn
//! in the middle, the length is anything between the durable and the cached one, and each creation,
//! rename or removal since the last sync of the directory has happened or not, in order. A sync
//! that fails drops its dirty sectors: reading still shows them, no later sync saves them. That is
//! harsher than most file systems, but within their guarantees.

use chappe_log::{Disk, File};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The unit of atomic writes in bytes.
const SECTOR: usize = 512;

/// An operation that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Making a file.
    Create,
    /// Opening a file.
    Open,
    /// Appending.
    Write,
    /// Reading.
    Read,
    /// Syncing a file.
    Sync,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Cutting a file.
    Truncate,
    /// Listing the directory.
    List,
    /// Syncing the directory.
    SyncDirectory,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 10] = [
        Operation::Create,
        Operation::Open,
        Operation::Write,
        Operation::Read,
        Operation::Sync,
        Operation::Rename,
        Operation::Remove,
        Operation::Truncate,
        Operation::List,
        Operation::SyncDirectory,
    ];
}

#[derive(Clone, Debug, Default)]
struct Inode {
    /// The content that reading returns.
    cached: Vec<u8>,
    /// The content that survives power loss.
    durable: Vec<u8>,
    /// Sectors that differ and that a sync would save.
    dirty: BTreeSet<usize>,
    /// Whether its length is in [`State::used`].
    counted: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Create(String, u64),
    Rename(String, String, u64),
    Remove(String),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Change::Create(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Change::Rename(from, to, inode) => {
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                names.insert(to.clone(), *inode);
            }
            Change::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Fault {
    operation: Operation,
    /// Fails after this many operations.
    after: u64,
    persistent: bool,
}

#[derive(Clone, Debug)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    changes: Vec<Change>,
    next_inode: u64,
    done: BTreeMap<Operation, u64>,
    /// Writes, syncs and changes of names so far: the points at which the power can fail.
    boundaries: u64,
    cut_at: Option<u64>,
    off: bool,
    faults: Vec<Fault>,
    faults_hit: u64,
    capacity: u64,
    /// Bytes of all files; `None` after names have changed.
    used: Option<u64>,
    free_hidden: bool,
    random: fastrand::Rng,
}

/// A disk in memory; clones share it.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

fn error(text: &str) -> io::Error {
    io::Error::other(text.to_owned())
}

impl SimDisk {
    /// An empty disk; the seed decides the outcome of torn operations.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::with(State {
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            next_inode: 1,
            done: BTreeMap::new(),
            boundaries: 0,
            cut_at: None,
            off: false,
            faults: Vec::new(),
            faults_hit: 0,
            capacity: u64::MAX,
            used: None,
            free_hidden: false,
            random: fastrand::Rng::with_seed(seed),
        })
    }

    fn with(state: State) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk after the process was killed: everything written is there, synced or not. Clones of
    /// the old disk cannot change this one.
    pub fn kill(&self) -> SimDisk {
        let mut state = self.state().clone();
        state.revive();
        SimDisk::with(state)
    }

    /// The disk after a power loss: one of the possible states, chosen by the seed.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let mut state = self.state().clone();
        let mut random = fastrand::Rng::with_seed(seed);
        // Whole ranges of outcomes are rare if each sector is tossed alone: toss the bias first.
        let keep = [0.0, 0.1, 0.5, 0.9, 1.0][random.usize(..5)];
        let mut names = state.durable_names.clone();
        for change in std::mem::take(&mut state.changes) {
            if random.f64() < keep {
                change.apply(&mut names);
            }
        }
        for inode in state.inodes.values_mut() {
            inode.crash(keep, &mut random);
        }
        state.durable_names.clone_from(&names);
        state.names = names;
        state.random = random;
        state.revive();
        SimDisk::with(state)
    }

    /// A copy of all files as a backup makes it: the same bytes in new files.
    pub fn copied(&self) -> SimDisk {
        let mut state = self.state().clone();
        // Only named files are copied, into new files.
        let mut files = BTreeMap::new();
        let mut next = state.next_inode;
        let State { inodes, names, .. } = &mut state;
        for inode in names.values_mut() {
            next += 1;
            files.insert(next, inodes.remove(inode).unwrap_or_default());
            *inode = next;
        }
        state.inodes = files;
        state.next_inode = next;
        for file in state.inodes.values_mut() {
            file.durable.clone_from(&file.cached);
            file.dirty.clear();
        }
        state.changes.clear();
        state.durable_names = state.names.clone();
        state.revive();
        SimDisk::with(state)
    }

    /// Cuts the power at a boundary: the nth (from 0) write, sync or change of names happens in
    /// part or not at all, and everything after it fails.
    pub fn cut_power_at(&self, boundary: u64) {
        self.state().cut_at = Some(boundary);
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// Writes, syncs and changes of names so far.
    pub fn boundaries(&self) -> u64 {
        self.state().boundaries
    }

    /// Makes the nth (from 0, counted from now) operation of a kind fail; all later ones too if
    /// persistent.
    pub fn fail(&self, operation: Operation, nth: u64, persistent: bool) {
        let mut state = self.state();
        let after = state.done.get(&operation).copied().unwrap_or(0) + nth;
        state.faults.push(Fault {
            operation,
            after,
            persistent,
        });
    }

    /// How often an operation failed by request.
    pub fn faults_hit(&self) -> u64 {
        self.state().faults_hit
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Sets the capacity in bytes; the disk is full if it is below the used bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Hides the free space from now on; only writes find out.
    pub fn hide_free_bytes(&self) {
        self.state().free_hidden = true;
    }

    /// Bytes of all files.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// How often an operation was done.
    pub fn done(&self, operation: Operation) -> u64 {
        self.state().done.get(&operation).copied().unwrap_or(0)
    }

    /// The names of the files.
    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// A file's bytes.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.names.get(name)?;
        state.inodes.get(inode).map(|file| file.cached.clone())
    }

    /// Puts a file with these bytes on the disk, durable.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let inode = match state.names.get(name) {
            Some(inode) => *inode,
            None => {
                state.next_inode += 1;
                state.next_inode
            }
        };
        let file = Inode {
            cached: bytes.to_vec(),
            durable: bytes.to_vec(),
            dirty: BTreeSet::new(),
            counted: false,
        };
        state.used = None;
        state.inodes.insert(inode, file);
        state.names.insert(name.to_owned(), inode);
        state.durable_names.insert(name.to_owned(), inode);
    }

    /// Flips one bit of a file; returns false if the file has no such bit.
    pub fn flip(&self, name: &str, bit: u64) -> bool {
        let mut state = self.state();
        let Some(inode) = state.names.get(name).copied() else {
            return false;
        };
        let Some(file) = state.inodes.get_mut(&inode) else {
            return false;
        };
        let (at, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        let Some(byte) = file.cached.get_mut(at) else {
            return false;
        };
        *byte ^= mask;
        // Rot of unsynced data is only in the cache.
        if let Some(byte) = file.durable.get_mut(at) {
            *byte ^= mask;
        }
        true
    }
}

impl State {
    fn revive(&mut self) {
        self.used = None;
        // Files without a name are inaccessible.
        let named: BTreeSet<u64> = self
            .names
            .values()
            .chain(self.durable_names.values())
            .copied()
            .collect();
        let changes = std::mem::take(&mut self.changes);
        let made = |inode: &u64| {
            changes.iter().any(|change| match change {
                Change::Create(_, made) | Change::Rename(_, _, made) => made == inode,
                Change::Remove(_) => false,
            })
        };
        self.inodes
            .retain(|inode, _| named.contains(inode) || made(inode));
        self.changes = changes;
        self.off = false;
        self.cut_at = None;
        self.faults.clear();
        self.faults_hit = 0;
        self.done.clear();
        self.boundaries = 0;
    }

    fn used(&mut self) -> u64 {
        if let Some(used) = self.used {
            return used;
        }
        for file in self.inodes.values_mut() {
            file.counted = false;
        }
        let mut used = 0;
        for inode in self.names.values() {
            if let Some(file) = self.inodes.get_mut(inode) {
                file.counted = true;
                used += file.cached.len() as u64;
            }
        }
        self.used = Some(used);
        used
    }

    /// The effect of a change of names on the used bytes.
    fn count_change(&mut self, change: &Change) {
        let (gone, new) = match change {
            Change::Create(name, inode) => (self.names.get(name), Some(inode)),
            Change::Rename(_, to, inode) => (self.names.get(to), Some(inode)),
            Change::Remove(name) => (self.names.get(name), None),
        };
        for (inode, counted) in [(gone, false), (new, true)] {
            let file = inode.and_then(|inode| self.inodes.get_mut(inode));
            let Some(file) = file.filter(|file| file.counted != counted) else {
                continue;
            };
            file.counted = counted;
            let bytes = file.cached.len() as u64;
            self.used = self.used.map(|used| match counted {
                true => used + bytes,
                false => used - bytes,
            });
        }
    }

    /// Counts an operation, and fails it if requested. `Ok(true)`: the power fails during it.
    fn begin(&mut self, operation: Operation) -> io::Result<bool> {
        if self.off {
            return Err(error("the power is off"));
        }
        let done = self.done.entry(operation).or_insert(0);
        let nth = *done;
        *done += 1;
        let hits = |fault: &Fault| {
            fault.operation == operation
                && (fault.after == nth || fault.persistent && fault.after < nth)
        };
        if self.faults.iter().any(hits) {
            self.faults_hit += 1;
            return Err(error("input/output error (simulated)"));
        }
        let boundary = !matches!(
            operation,
            Operation::Open | Operation::Read | Operation::List
        );
        if boundary {
            if self.cut_at == Some(self.boundaries) {
                self.off = true;
                return Ok(true);
            }
            self.boundaries += 1;
        }
        Ok(false)
    }

    fn change(&mut self, operation: Operation, change: Change) -> io::Result<()> {
        if self.begin(operation)? {
            if self.random.bool() {
                self.count_change(&change);
                change.apply(&mut self.names);
                self.changes.push(change);
            }
            return Err(error("the power went off"));
        }
        self.count_change(&change);
        change.apply(&mut self.names);
        self.changes.push(change);
        Ok(())
    }
}

impl Inode {
    fn append(&mut self, bytes: &[u8]) {
        let from = self.cached.len() / SECTOR;
        self.cached.extend_from_slice(bytes);
        self.dirty.extend(from..self.cached.len().div_ceil(SECTOR));
    }

    fn write_again(&mut self, from: usize, bytes: &[u8]) -> io::Result<()> {
        let there = self.cached.get_mut(from..from + bytes.len());
        let there = there.ok_or_else(|| error("the bytes to overwrite do not exist"))?;
        there.copy_from_slice(bytes);
        let last = (from + bytes.len()).div_ceil(SECTOR);
        self.dirty.extend(from / SECTOR..last);
        Ok(())
    }

    fn truncate(&mut self, length: usize) {
        self.cached.truncate(length);
        self.dirty.insert(length / SECTOR);
    }

    fn save(&mut self, sector: usize, bytes: usize) {
        let from = sector * SECTOR;
        let to = (from + bytes).min(self.cached.len());
        if from >= to {
            return;
        }
        if self.durable.len() < to {
            self.durable.resize(to, 0);
        }
        self.durable[from..to].copy_from_slice(&self.cached[from..to]);
    }

    fn sync(&mut self) {
        for sector in std::mem::take(&mut self.dirty) {
            self.save(sector, SECTOR);
        }
        self.durable.resize(self.cached.len(), 0);
    }

    /// Fails a sync: some sectors are saved, the others never will be.
    fn fail_sync(&mut self, random: &mut fastrand::Rng) {
        for sector in std::mem::take(&mut self.dirty) {
            if random.bool() {
                self.save(sector, SECTOR);
            }
        }
    }

    fn crash(&mut self, keep: f64, random: &mut fastrand::Rng) {
        let (durable, cached) = (self.durable.len(), self.cached.len());
        if self.dirty.is_empty() && durable == cached {
            self.cached.clone_from(&self.durable);
            return;
        }
        for sector in std::mem::take(&mut self.dirty) {
            if random.f64() < keep {
                let torn = random.f64() < 0.2;
                let bytes = if torn { random.usize(..SECTOR) } else { SECTOR };
                self.save(sector, bytes);
            }
        }
        let (low, high) = (durable.min(cached), durable.max(cached));
        let length = match random.usize(..3) {
            0 => durable,
            1 => cached,
            _ => random.usize(low..=high),
        };
        self.durable.resize(length, 0);
        self.cached.clone_from(&self.durable);
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: u64,
}

impl SimFile {
    fn with<T>(&self, state: &mut State, act: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        let file = state.inodes.get_mut(&self.inode);
        let file = file.ok_or_else(|| error("no such file"))?;
        let before = file.cached.len() as u64;
        let done = act(file);
        if let Some(used) = state.used.as_mut().filter(|_| file.counted) {
            *used = *used + file.cached.len() as u64 - before;
        }
        Ok(done)
    }
}

impl Disk for SimDisk {
    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        let mut state = self.state();
        state.next_inode += 1;
        let inode = state.next_inode;
        state.inodes.insert(inode, Inode::default());
        state.change(Operation::Create, Change::Create(name.to_owned(), inode))?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            inode,
        }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let mut state = self.state();
        state.begin(Operation::Open)?;
        let inode = state
            .names
            .get(name)
            .copied()
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            inode,
        }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.begin(Operation::List)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let inode = state
            .names
            .get(from)
            .copied()
            .ok_or(io::ErrorKind::NotFound)?;
        let change = Change::Rename(from.to_owned(), to.to_owned(), inode);
        state.change(Operation::Rename, change)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change(Operation::Remove, Change::Remove(name.to_owned()))
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.begin(Operation::SyncDirectory)? {
            return Err(error("the power went off"));
        }
        for change in std::mem::take(&mut state.changes) {
            change.apply(&mut state.durable_names);
        }
        Ok(())
    }

    fn identity(&self, name: &str) -> io::Result<u128> {
        let state = self.state();
        let inode = state
            .names
            .get(name)
            .copied()
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(u128::from(inode))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let mut state = self.state();
        if state.free_hidden {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(state.capacity.saturating_sub(state.used()))
    }
}

impl File for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.disk.state();
        if state.begin(Operation::Write)? {
            let part = state.random.usize(..=bytes.len());
            self.with(state, |file| file.append(&bytes[..part]))?;
            return Err(error("the power went off"));
        }
        let room = state.capacity.saturating_sub(state.used());
        if (bytes.len() as u64) > room {
            self.with(state, |file| file.append(&bytes[..room as usize]))?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.with(state, |file| file.append(bytes))
    }

    fn write_again(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let cut = state.begin(Operation::Write)?;
        let length = if cut {
            state.random.usize(..=bytes.len())
        } else {
            bytes.len()
        };
        self.with(state, |file| {
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            file.write_again(from, &bytes[..length])
        })??;
        if cut {
            Err(error("the power went off"))
        } else {
            Ok(())
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.disk.state();
        state.begin(Operation::Read)?;
        self.with(state, |file| {
            let from = usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .min(file.cached.len());
            let length = buffer.len().min(file.cached.len() - from);
            buffer[..length].copy_from_slice(&file.cached[from..from + length]);
            length
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let mut random = state.random.fork();
        match state.begin(Operation::Sync) {
            Ok(false) => self.with(state, Inode::sync),
            Ok(true) => Err(error("the power went off")),
            Err(error) => {
                if !state.off {
                    self.with(state, |file| file.fail_sync(&mut random))?;
                }
                Err(error)
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        let state = &mut *self.disk.state();
        self.with(state, |file| file.cached.len() as u64)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let state = &mut *self.disk.state();
        if state.begin(Operation::Truncate)? {
            return Err(error("the power went off"));
        }
        self.with(state, |file| {
            file.truncate(usize::try_from(length).unwrap_or(usize::MAX))
        })
    }
}
