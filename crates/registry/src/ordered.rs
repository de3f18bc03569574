//! A compact ordered set whose clones are snapshots.
//!
//! Three levels: a root of branches, branches of leaves, leaves of sorted keys in one allocation.
//! Clones share every level and copy it only on change, so a snapshot costs a reader one reference
//! count. Counts in the branches make the number of keys in a range exact and cheap; they are the
//! registry's statistics.
//!
//! A leaf's and a branch's first key stands beside the reference to it, so that a search reads few lines of memory
//! however many keys there are. Keys that own memory are not copied there: a second owner would make each of their
//! changes a copy.
//!
//! Positions are found by a predicate `before`, true for all keys up to the position and false
//! after it, so one set serves many kinds of prefix. Keys are not compared in any other way.

use std::sync::Arc;

/// Maximum number of keys in a leaf: 6 KiB of triples, moved by one insertion in about 100 ns.
const LEAF_KEYS: usize = 512;
/// Maximum number of leaves in a branch.
const BRANCH_LEAVES: usize = 128;
/// Keys of a leaf and leaves of a branch that are made at once; reason: the next insertions find room.
const LOADED_KEYS: usize = LEAF_KEYS / 8 * 7;
const LOADED_LEAVES: usize = BRANCH_LEAVES / 8 * 7;
/// A leaf grows by this fraction of its size, so that little of it is unused.
const GROWTH_DIVISOR: usize = 8;

/// Counts the keys that this thread compared, for tests of cost.
#[cfg(test)]
pub(crate) mod steps {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count() {
        STEPS.set(STEPS.get() + 1);
    }

    /// The keys compared since the last call.
    pub(crate) fn take() -> usize {
        STEPS.replace(0)
    }
}

#[derive(Clone)]
struct Leaf<K> {
    /// The first key, unless keys own memory.
    first: Option<K>,
    keys: Arc<Vec<K>>,
}

impl<K: Clone> Leaf<K> {
    fn new(keys: Vec<K>) -> Self {
        Self {
            first: copied(keys.first()),
            keys: Arc::new(keys),
        }
    }

    /// Whether the first key is `before`.
    fn starts(&self, before: &impl Fn(&K) -> bool) -> bool {
        self.first
            .as_ref()
            .or_else(|| self.keys.first())
            .is_some_and(before)
    }
}

#[derive(Clone)]
struct Branch<K> {
    /// The first key of the first leaf, unless keys own memory.
    first: Option<K>,
    /// Number of keys in all leaves.
    count: usize,
    leaves: Arc<Vec<Leaf<K>>>,
}

impl<K: Clone> Branch<K> {
    fn new(leaves: Vec<Leaf<K>>) -> Self {
        Self {
            first: leaves.first().and_then(|leaf| leaf.first.clone()),
            count: leaves.iter().map(|leaf| leaf.keys.len()).sum(),
            leaves: Arc::new(leaves),
        }
    }

    /// Whether the first key is `before`.
    fn starts(&self, before: &impl Fn(&K) -> bool) -> bool {
        match &self.first {
            Some(first) => before(first),
            None => self.leaves.first().is_some_and(|leaf| leaf.starts(&before)),
        }
    }
}

/// A copy of a key that owns no memory.
fn copied<K: Clone>(key: Option<&K>) -> Option<K> {
    key.filter(|_| !std::mem::needs_drop::<K>()).cloned()
}

/// The set. Never holds an empty leaf or branch.
pub(crate) struct OrderedSet<K> {
    branches: Arc<Vec<Branch<K>>>,
    len: usize,
}

impl<K> Clone for OrderedSet<K> {
    fn clone(&self) -> Self {
        Self {
            branches: Arc::clone(&self.branches),
            len: self.len,
        }
    }
}

impl<K> Default for OrderedSet<K> {
    fn default() -> Self {
        Self {
            branches: Arc::new(Vec::new()),
            len: 0,
        }
    }
}

/// A position between keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    branch: usize,
    leaf: usize,
    index: usize,
}

impl<K: Clone> OrderedSet<K> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Size of the keys and of the structure in bytes, including spare capacity, without data that
    /// keys own.
    pub(crate) fn memory_bytes(&self) -> usize {
        let arc = 2 * size_of::<usize>();
        let mut bytes = arc + self.branches.capacity() * size_of::<Branch<K>>();
        for branch in self.branches.iter() {
            bytes += arc + branch.leaves.capacity() * size_of::<Leaf<K>>();
            for leaf in branch.leaves.iter() {
                bytes += arc + size_of::<Vec<K>>() + leaf.keys.capacity() * size_of::<K>();
            }
        }
        bytes
    }

    /// The leaf of the last key that is `before`, and the position after that key; the start if
    /// there is none.
    fn seek(&self, before: impl Fn(&K) -> bool) -> Place {
        #[cfg(test)]
        let before = |key: &K| {
            steps::count();
            before(key)
        };
        let branches = &self.branches;
        let branch = branches
            .partition_point(|branch| branch.starts(&before))
            .saturating_sub(1);
        let Some(found) = branches.get(branch) else {
            return Place {
                branch: 0,
                leaf: 0,
                index: 0,
            };
        };
        let leaf = found
            .leaves
            .partition_point(|leaf| leaf.starts(&before))
            .saturating_sub(1);
        let keys = found.leaves.get(leaf).map_or(&[][..], |leaf| &leaf.keys);
        Place {
            branch,
            leaf,
            index: keys.partition_point(&before),
        }
    }

    fn keys_at(&self, place: Place) -> &[K] {
        self.branches
            .get(place.branch)
            .and_then(|branch| branch.leaves.get(place.leaf))
            .map_or(&[], |leaf| &leaf.keys)
    }

    /// The next position that has a key, if `place` is at the end of its leaf.
    fn normal(&self, mut place: Place) -> Option<Place> {
        if place.index < self.keys_at(place).len() {
            return Some(place);
        }
        place = Place {
            branch: place.branch,
            leaf: place.leaf + 1,
            index: 0,
        };
        if place.leaf >= self.branches.get(place.branch)?.leaves.len() {
            place = Place {
                branch: place.branch + 1,
                leaf: 0,
                index: 0,
            };
        }
        (!self.keys_at(place).is_empty()).then_some(place)
    }

    /// The first key that is not `before`.
    pub(crate) fn first_from(&self, before: impl Fn(&K) -> bool) -> Option<&K> {
        let place = self.normal(self.seek(before))?;
        self.keys_at(place).get(place.index)
    }

    /// The last key that is `before`.
    pub(crate) fn last_before(&self, before: impl Fn(&K) -> bool) -> Option<&K> {
        let place = self.seek(before);
        self.keys_at(place).get(place.index.checked_sub(1)?)
    }

    /// The number of keys that are `before`.
    pub(crate) fn rank(&self, before: impl Fn(&K) -> bool) -> usize {
        let place = self.seek(before);
        let whole: usize = self
            .branches
            .iter()
            .take(place.branch)
            .map(|branch| branch.count)
            .sum();
        let leaves = self
            .branches
            .get(place.branch)
            .map_or(&[][..], |branch| &branch.leaves);
        let part: usize = leaves
            .iter()
            .take(place.leaf)
            .map(|leaf| leaf.keys.len())
            .sum();
        whole + part + place.index
    }

    /// All keys from the first that is not `before`, on their own snapshot.
    pub(crate) fn iter_from(&self, before: impl Fn(&K) -> bool) -> Iter<K> {
        Iter {
            place: self.seek(before),
            set: self.clone(),
        }
    }

    /// All keys.
    pub(crate) fn iter(&self) -> Iter<K> {
        self.iter_from(|_| false)
    }

    /// A set of keys that are in order, none of them twice.
    pub(crate) fn of_sorted(keys: &[K]) -> Self {
        let leaf = |keys: &[K]| Leaf::new(keys.to_vec());
        let branch = |keys: &[K]| Branch::new(keys.chunks(LOADED_KEYS).map(leaf).collect());
        let branches = keys.chunks(LOADED_KEYS * LOADED_LEAVES).map(branch);
        Self {
            branches: Arc::new(branches.collect()),
            len: keys.len(),
        }
    }

    /// Inserts `key` after all keys that are `before`. The caller ensures that it is absent.
    pub(crate) fn insert_at(&mut self, before: impl Fn(&K) -> bool, key: K) {
        self.put(self.seek(before), key);
    }

    /// Adds `key` at the end, wherever it belongs. [`OrderedSet::order`] has to follow before anything is looked up.
    pub(crate) fn push(&mut self, key: K) {
        let branch = self.branches.len().saturating_sub(1);
        let leaves = self.branches.last().map_or(&[][..], |last| &last.leaves);
        let place = Place {
            branch,
            leaf: leaves.len().saturating_sub(1),
            index: leaves.last().map_or(0, |last| last.keys.len()),
        };
        self.put(place, key);
    }

    /// Inserts `key` at `place`.
    fn put(&mut self, place: Place, key: K) {
        let at_end = place.branch + 1 >= self.branches.len();
        let branches = Arc::make_mut(&mut self.branches);
        self.len += 1;
        let Some(branch) = branches.get_mut(place.branch) else {
            branches.push(Branch::new(vec![Leaf::new(vec![key])]));
            return;
        };
        branch.count += 1;
        let leaves = Arc::make_mut(&mut branch.leaves);
        let at_end = at_end && place.leaf + 1 >= leaves.len();
        let Some(leaf) = leaves.get_mut(place.leaf) else {
            return;
        };
        let keys = Arc::make_mut(&mut leaf.keys);
        if keys.len() == keys.capacity() {
            keys.reserve_exact((keys.len() / GROWTH_DIVISOR).max(4));
        }
        let at_end = at_end && place.index == keys.len();
        keys.insert(place.index, key);
        if place.index == 0 {
            leaf.first = copied(keys.first());
            if place.leaf == 0 {
                branch.first.clone_from(&leaf.first);
            }
        }
        if keys.len() < LEAF_KEYS {
            return;
        }
        // Keys that arrive in order leave full leaves; others leave half-full ones.
        let tail = keys.split_off(if at_end { LEAF_KEYS - 1 } else { LEAF_KEYS / 2 });
        keys.shrink_to_fit();
        leaves.insert(place.leaf + 1, Leaf::new(tail));
        if leaves.len() < BRANCH_LEAVES {
            return;
        }
        let tail = leaves.split_off(if at_end {
            BRANCH_LEAVES - 1
        } else {
            BRANCH_LEAVES / 2
        });
        let tail = Branch::new(tail);
        branch.count -= tail.count;
        branches.insert(place.branch + 1, tail);
    }

    /// Changes the first key that is not `before`, if it is `wanted`. Its order must stay as it is.
    pub(crate) fn update_at(
        &mut self,
        before: impl Fn(&K) -> bool,
        wanted: impl Fn(&K) -> bool,
        change: impl FnOnce(&mut K),
    ) {
        let Some(place) = self.normal(self.seek(before)) else {
            return;
        };
        if !self.keys_at(place).get(place.index).is_some_and(wanted) {
            return;
        }
        let branches = Arc::make_mut(&mut self.branches);
        let Some(branch) = branches.get_mut(place.branch) else {
            return;
        };
        let leaves = Arc::make_mut(&mut branch.leaves);
        let Some(leaf) = leaves.get_mut(place.leaf) else {
            return;
        };
        if let Some(key) = Arc::make_mut(&mut leaf.keys).get_mut(place.index) {
            change(key);
        }
        leaf.first = copied(leaf.keys.first());
        if place.leaf == 0 {
            branch.first.clone_from(&leaf.first);
        }
    }

    /// Removes and returns the first key that is not `before`, if it is `wanted`.
    pub(crate) fn remove_at(
        &mut self,
        before: impl Fn(&K) -> bool,
        wanted: impl Fn(&K) -> bool,
    ) -> Option<K> {
        let place = self.normal(self.seek(before))?;
        if !self.keys_at(place).get(place.index).is_some_and(wanted) {
            return None;
        }
        let branches = Arc::make_mut(&mut self.branches);
        let branch = branches.get_mut(place.branch)?;
        let leaves = Arc::make_mut(&mut branch.leaves);
        let leaf = leaves.get_mut(place.leaf)?;
        let keys = Arc::make_mut(&mut leaf.keys);
        let key = keys.remove(place.index);
        if keys.capacity() > 2 * keys.len() + 8 {
            keys.shrink_to(keys.len() + keys.len() / GROWTH_DIVISOR);
        }
        let left = keys.len();
        if place.index == 0 {
            leaf.first = copied(keys.first());
        }
        branch.count -= 1;
        self.len -= 1;
        if left < LEAF_KEYS / 4 {
            merge(leaves, place.leaf);
        }
        match leaves.first() {
            Some(leaf) => branch.first.clone_from(&leaf.first),
            None => drop(branches.remove(place.branch)),
        }
        Some(key)
    }
}

/// Joins the small leaf `at` with its right or left neighbour if both fit, or drops it when empty.
fn merge<K: Clone>(leaves: &mut Vec<Leaf<K>>, at: usize) {
    let size = |leaves: &[Leaf<K>], at: usize| leaves.get(at).map_or(LEAF_KEYS, |l| l.keys.len());
    if size(leaves, at) == 0 {
        leaves.remove(at);
        return;
    }
    let fits = |left: usize| size(leaves, left) + size(leaves, left + 1) < LEAF_KEYS / 2;
    let left = if fits(at) {
        at
    } else if at > 0 && fits(at - 1) {
        at - 1
    } else {
        return;
    };
    let right = leaves.remove(left + 1);
    if let Some(leaf) = leaves.get_mut(left) {
        Arc::make_mut(&mut leaf.keys).extend(right.keys.iter().cloned());
    }
}

impl<K: Ord + Clone> OrderedSet<K> {
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.first_from(|other| other < key) == Some(key)
    }

    /// Inserts `key`; false if it was present.
    pub(crate) fn insert(&mut self, key: K) -> bool {
        let place = self.seek(|other| *other < key);
        let next = self.normal(place);
        if next.and_then(|next| self.keys_at(next).get(next.index)) == Some(&key) {
            return false;
        }
        self.put(place, key);
        true
    }

    /// Orders the keys that were added by [`OrderedSet::push`]; of equal keys one stays.
    pub(crate) fn order(&mut self) {
        let mut keys: Vec<K> = self.iter().collect();
        keys.sort_unstable();
        keys.dedup();
        *self = Self::of_sorted(&keys);
    }

    /// Removes `key`; false if it was absent.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        self.remove_at(|other| other < key, |other| other == key)
            .is_some()
    }
}

/// Keys in order, from a snapshot.
pub(crate) struct Iter<K> {
    set: OrderedSet<K>,
    place: Place,
}

impl<K: Clone> Iterator for Iter<K> {
    type Item = K;

    fn next(&mut self) -> Option<K> {
        self.place = self.set.normal(self.place)?;
        let key = self.set.keys_at(self.place).get(self.place.index)?.clone();
        self.place.index += 1;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The first keys beside references are those of the leaves, and absent where keys own memory.
    fn assert_firsts<K: Clone + PartialEq + std::fmt::Debug>(set: &OrderedSet<K>) {
        for branch in set.branches.iter() {
            assert!(!branch.leaves.is_empty());
            assert_eq!(branch.first, copied(branch.leaves[0].keys.first()));
            for leaf in branch.leaves.iter() {
                assert!(!leaf.keys.is_empty());
                assert_eq!(leaf.first, copied(leaf.keys.first()));
            }
        }
    }

    /// A shared key would be copied with each change of what it owns.
    #[test]
    fn keys_that_own_memory_have_one_owner() {
        let mut set = OrderedSet::default();
        for number in 0..2_000_u32 {
            set.insert(Arc::new(number));
        }
        set.remove(&Arc::new(0));
        assert_firsts(&set);
        let mut is_only = false;
        let before = |key: &Arc<u32>| **key < 1;
        set.update_at(
            before,
            |_| true,
            |key| is_only = Arc::get_mut(key).is_some(),
        );
        assert!(is_only);
        assert!(set.iter().map(|key| *key).eq(1..2_000));
    }

    proptest! {
        /// The set behaves like the standard ordered set, and later steps do not change a clone.
        #[test]
        fn it_equals_the_standard_set(
            steps in proptest::collection::vec((any::<bool>(), 0_u32..3_000), 0..6_000),
            cut in 0_usize..6_000,
        ) {
            let mut set = OrderedSet::default();
            let mut model = BTreeSet::new();
            let mut kept = None;
            for (step, (insert, key)) in steps.iter().enumerate() {
                if step == cut {
                    kept = Some((set.clone(), model.clone()));
                }
                if *insert || step % 5 != 0 {
                    prop_assert_eq!(set.insert(*key), model.insert(*key));
                } else {
                    prop_assert_eq!(set.remove(key), model.remove(key));
                }
            }
            for (set, model) in kept.into_iter().chain([(set, model)]) {
                assert_firsts(&set);
                prop_assert_eq!(set.len(), model.len());
                prop_assert!(set.iter().eq(model.iter().copied()));
                for probe in [0, 1, 700, 2_999, 3_000] {
                    prop_assert_eq!(set.rank(|key| *key < probe), model.range(..probe).count());
                    let last = set.last_before(|key| *key < probe);
                    prop_assert_eq!(last, model.range(..probe).next_back());
                    prop_assert!(
                        set.iter_from(|key| *key < probe).eq(model.range(probe..).copied())
                    );
                }
            }
        }
    }

    proptest! {
        /// A set that was made at once behaves like one whose keys were inserted one by one.
        #[test]
        fn all_at_once_is_one_by_one(
            keys in proptest::collection::vec(0_u32..20_000, 0..6_000),
            later in proptest::collection::vec((any::<bool>(), 0_u32..20_000), 0..3_000),
        ) {
            let (mut single, mut bulk) = (OrderedSet::default(), OrderedSet::default());
            for key in keys {
                single.insert(key);
                bulk.push(key);
            }
            bulk.order();
            prop_assert!(bulk.iter().eq(single.iter()));
            for (insert, key) in later {
                prop_assert_eq!(bulk.contains(&key), single.contains(&key));
                if insert {
                    prop_assert_eq!(bulk.insert(key), single.insert(key));
                } else {
                    prop_assert_eq!(bulk.remove(&key), single.remove(&key));
                }
                prop_assert_eq!(bulk.len(), single.len());
                prop_assert_eq!(bulk.rank(|other| *other < key), single.rank(|other| *other < key));
            }
            prop_assert!(bulk.iter().eq(single.iter()));
            assert_firsts(&bulk);
        }
    }

    #[test]
    fn many_levels_are_made_at_once() {
        let total = 3 * (LEAF_KEYS * BRANCH_LEAVES) as u32;
        let mut set = OrderedSet::default();
        for key in (0..total).rev() {
            set.push(2 * key);
        }
        set.order();
        assert!(set.branches.len() > 2);
        assert!(set.iter().eq((0..total).map(|key| 2 * key)));
        for key in (0..total).step_by(101) {
            assert_eq!(set.rank(|other| *other < 2 * key), key as usize);
            assert!(set.insert(2 * key + 1));
            assert!(!set.insert(2 * key));
            assert!(set.remove(&(2 * key + 1)));
        }
    }

    #[test]
    fn an_update_changes_one_key_and_no_snapshot() {
        let mut set = OrderedSet::default();
        for number in 0..3_000 {
            set.insert([number, 0]);
        }
        let before = set.clone();
        for number in [0, 511, 512, 2_999, 3_000] {
            let at = |key: &[u32; 2]| key[0] < number;
            set.update_at(at, |key| key[0] == number, |key| key[1] += 7);
        }
        assert!(before.iter().all(|[_, value]| value == 0));
        let changed: Vec<u32> = set
            .iter()
            .filter(|key| key[1] == 7)
            .map(|key| key[0])
            .collect();
        assert_eq!(changed, [0, 511, 512, 2_999]);
        assert_firsts(&set);
        assert_eq!(set.len(), 3_000);
    }

    #[test]
    fn many_levels_hold_and_empty_again() {
        let mut set = OrderedSet::default();
        let total = 3 * (LEAF_KEYS * BRANCH_LEAVES) as u32;
        for key in 0..total {
            assert!(set.insert(key.reverse_bits()));
        }
        assert!(set.branches.len() > 2);
        assert_eq!(set.rank(|_| true), total as usize);
        for key in 0..total {
            assert!(set.remove(&key.reverse_bits()));
        }
        assert_eq!(
            (set.len(), set.branches.len(), set.iter().count()),
            (0, 0, 0)
        );
    }
}
