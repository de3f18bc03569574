//! Which descriptor stands in which, so that those below one are found without trying all.

use std::collections::{HashMap, HashSet};

/// Descriptors whose place is known. Reason: some ten for each metric.
pub(super) const DESCRIPTORS_MAX: usize = 8_192;

/// The containment tree, or what a device says that it is: it may be a circle.
#[derive(Debug, Default)]
pub(super) struct Tree {
    parents: HashMap<String, String>,
    children: HashMap<String, HashSet<String>>,
}

impl Tree {
    /// Puts a descriptor below another, from wherever it was; when there is no room it is left out.
    pub(super) fn put(&mut self, handle: String, parent: String) {
        if self.parents.len() >= DESCRIPTORS_MAX && !self.parents.contains_key(&handle) {
            return;
        }
        self.unlink(&handle);
        let siblings = self.children.entry(parent.clone()).or_default();
        siblings.insert(handle.clone());
        self.parents.insert(handle, parent);
    }

    /// Takes a descriptor out with all that stand below it; gives their handles, its own first. What
    /// is taken out was put before, so a report cannot ask for more than it and those before it put.
    pub(super) fn take(&mut self, handle: &str) -> Vec<String> {
        let mut taken = vec![handle.to_owned()];
        let mut next = 0;
        while let Some(one) = taken.get(next) {
            let one = one.clone();
            self.unlink(&one);
            taken.extend(self.children.remove(&one).unwrap_or_default());
            next += 1;
        }
        taken
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn unlink(&mut self, handle: &str) {
        let Some(parent) = self.parents.remove(handle) else {
            return;
        };
        if let Some(siblings) = self.children.get_mut(&parent) {
            siblings.remove(handle);
            if siblings.is_empty() {
                self.children.remove(&parent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(links: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (handle, parent) in links {
            tree.put((*handle).to_owned(), (*parent).to_owned());
        }
        tree
    }

    fn taken(tree: &mut Tree, handle: &str) -> Vec<String> {
        let mut taken = tree.take(handle);
        taken.sort();
        taken
    }

    #[test]
    fn a_descriptor_goes_with_all_below_it() {
        let mut tree = tree(&[
            ("v", "mds"),
            ("c", "v"),
            ("m", "c"),
            ("n", "c"),
            ("n", "mds"),
        ]);
        assert_eq!(taken(&mut tree, "v"), ["c", "m", "v"]);
        assert_eq!(taken(&mut tree, "m"), ["m"], "it is known no more");
        assert_eq!(taken(&mut tree, "mds"), ["mds", "n"]);
        assert!(tree.parents.is_empty() && tree.children.is_empty());
    }

    #[test]
    fn a_circle_ends_and_there_is_room_for_so_many() {
        let mut circle = tree(&[("a", "b"), ("b", "a"), ("c", "c")]);
        assert_eq!(circle.take("a"), ["a", "b"]);
        assert_eq!(circle.take("c"), ["c"]);
        assert!(circle.parents.is_empty() && circle.children.is_empty());
        for number in 0..=DESCRIPTORS_MAX {
            circle.put(number.to_string(), "x".to_owned());
        }
        assert_eq!(circle.take("x").len(), DESCRIPTORS_MAX + 1);
    }
}
