//! The parent of each descriptor, to find descendants without a search.

use std::collections::{HashMap, HashSet};

/// The largest number of descriptors. Reason: about ten for each metric.
pub(super) const DESCRIPTORS_MAX: usize = 8_192;

/// The containment tree as described by the device: it may be circular.
#[derive(Debug, Default)]
pub(super) struct Tree {
    parents: HashMap<String, String>,
    children: HashMap<String, HashSet<String>>,
}

impl Tree {
    /// Moves a descriptor below another; without room it is left out.
    pub(super) fn insert(&mut self, handle: String, parent: String) {
        if self.parents.len() >= DESCRIPTORS_MAX && !self.parents.contains_key(&handle) {
            return;
        }
        self.unlink(&handle);
        let siblings = self.children.entry(parent.clone()).or_default();
        siblings.insert(handle.clone());
        self.parents.insert(handle, parent);
    }

    /// Removes a descriptor with all its descendants; returns their handles, its own first. Each was inserted
    /// before, so the work of removals is bounded by the insertions.
    pub(super) fn remove(&mut self, handle: &str) -> Vec<String> {
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
            tree.insert((*handle).to_owned(), (*parent).to_owned());
        }
        tree
    }

    fn taken(tree: &mut Tree, handle: &str) -> Vec<String> {
        let mut taken = tree.remove(handle);
        taken.sort();
        taken
    }

    #[test]
    fn a_descriptor_is_removed_with_its_descendants() {
        let mut tree = tree(&[
            ("v", "mds"),
            ("c", "v"),
            ("m", "c"),
            ("n", "c"),
            ("n", "mds"),
        ]);
        assert_eq!(taken(&mut tree, "v"), ["c", "m", "v"]);
        assert_eq!(taken(&mut tree, "m"), ["m"], "it is no longer known");
        assert_eq!(taken(&mut tree, "mds"), ["mds", "n"]);
        assert!(tree.parents.is_empty() && tree.children.is_empty());
    }

    #[test]
    fn a_circular_tree_ends_and_the_size_is_bounded() {
        let mut circle = tree(&[("a", "b"), ("b", "a"), ("c", "c")]);
        assert_eq!(circle.remove("a"), ["a", "b"]);
        assert_eq!(circle.remove("c"), ["c"]);
        assert!(circle.parents.is_empty() && circle.children.is_empty());
        for number in 0..=DESCRIPTORS_MAX {
            circle.insert(number.to_string(), "x".to_owned());
        }
        assert_eq!(circle.remove("x").len(), DESCRIPTORS_MAX + 1);
    }
}
