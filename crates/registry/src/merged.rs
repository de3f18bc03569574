//! The triples of several sets of indexes as one, each once.

use std::cmp::Ordering as Compared;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

use crate::budget::{Budget, BudgetSpent};
use crate::dictionary::Id;
use crate::partition::{Partition, Range, Triples};

/// Sets of indexes that are opened at the price of one step.
const OPENED_FOR_STEP: usize = 8;

/// The triples of a pattern in all visible indexes, each once, in the order of the index.
pub(crate) struct Merged {
    range: Range,
    partitions: Arc<[Arc<Partition>]>,
    lists: Lists,
    /// The triple returned last: another set of indexes may have it as well.
    last: Option<[Id; 3]>,
    budget: Arc<Budget>,
    opened: bool,
}

/// The triples of each set of indexes that has any.
enum Lists {
    None,
    One(Head),
    Many(BinaryHeap<Head>),
}

/// The next triple of a set of indexes, and those after it. The one whose triple comes first is the greatest.
struct Head {
    key: [Id; 3],
    triples: Triples,
}

impl Head {
    fn of(mut triples: Triples) -> Option<Self> {
        let key = triples.next_key()?;
        Some(Self { key, triples })
    }

    /// Moves to the next triple; false at the end.
    fn advance(&mut self) -> bool {
        let next = self.triples.next_key();
        next.inspect(|key| self.key = *key).is_some()
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Compared {
        other.key.cmp(&self.key)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Compared> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Head {}

impl Lists {
    fn add(self, head: Head) -> Self {
        match self {
            Self::None => Self::One(head),
            Self::One(first) => Self::Many(BinaryHeap::from([first, head])),
            Self::Many(mut heads) => {
                heads.push(head);
                Self::Many(heads)
            }
        }
    }

    /// The key of the first triple of all.
    fn next(&mut self) -> Option<[Id; 3]> {
        match self {
            Self::None => None,
            Self::One(head) => {
                let key = head.key;
                if !head.advance() {
                    *self = Self::None;
                }
                Some(key)
            }
            Self::Many(heads) => {
                let mut first = heads.peek_mut()?;
                let key = first.key;
                if !first.advance() {
                    PeekMut::pop(first);
                }
                Some(key)
            }
        }
    }
}

impl Merged {
    pub(crate) fn new(
        range: Range,
        partitions: Arc<[Arc<Partition>]>,
        budget: Arc<Budget>,
    ) -> Self {
        Self {
            range,
            partitions,
            lists: Lists::None,
            last: None,
            budget,
            opened: false,
        }
    }

    fn open(&mut self) -> Result<(), BudgetSpent> {
        // A lookup costs a step even if it finds nothing.
        let steps = 1 + self.partitions.len() / OPENED_FOR_STEP;
        self.budget.charge_steps(steps as u64, false)?;
        for partition in self.partitions.iter() {
            if let Some(head) = Head::of(partition.triples(self.range)) {
                self.lists = std::mem::replace(&mut self.lists, Lists::None).add(head);
            }
        }
        Ok(())
    }
}

impl Iterator for Merged {
    type Item = Result<[Id; 3], BudgetSpent>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.opened {
            self.opened = true;
            if self.open().is_err() {
                return Some(Err(BudgetSpent));
            }
        }
        loop {
            let key = self.lists.next()?;
            if self.budget.charge_entry().is_err() {
                self.lists = Lists::None;
                return Some(Err(BudgetSpent));
            }
            if self.last.replace(key) == Some(key) {
                continue;
            }
            return Some(Ok(self.range.order.triple(key)));
        }
    }
}
