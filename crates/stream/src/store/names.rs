//! The names of a stream: the one under which it was defined, and those that it was given later.
//!
//! The first name identifies the stream in the log for as long as the stream exists; a later name changes
//! nothing that is stored. Every name goes on meaning the stream, so that those who know a former one find
//! it. The owner of the streams sees to it that no two streams share a name.

use serde::{Deserialize, Serialize};

/// Names of one stream, the first one included; reason: each is compared when a name or a pattern is
/// resolved.
pub const NAMES_MAX: usize = 16;

/// The names that a stream was given after its definition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaterNames {
    /// Oldest first, each once.
    names: Vec<String>,
    /// The index of the current name, after that of the first name, which is 0.
    current: u32,
}

/// A change of a stream's names was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenameError {
    /// It has had too many names.
    #[error("the stream has had {NAMES_MAX} names, which is the limit")]
    TooMany,
    /// The name is the current one.
    #[error("{0:?} is the name of the stream now")]
    IsCurrent(String),
    /// The name is the one under which the stream was defined.
    #[error("{0:?} identifies the stream in the log for as long as the stream exists")]
    IsFirst(String),
    /// The stream never had this name.
    #[error("{0:?} is not a former name of the stream")]
    NotFormer(String),
}

impl LaterNames {
    /// The current name of a stream that was defined as `first`.
    pub(super) fn current<'a>(&'a self, first: &'a str) -> &'a str {
        let later = usize::try_from(self.current).unwrap_or(usize::MAX);
        let name = later.checked_sub(1).and_then(|index| self.names.get(index));
        name.map_or(first, String::as_str)
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Makes `name` the current name.
    pub(super) fn set_current(&mut self, first: &str, name: &str) -> Result<(), RenameError> {
        let index = match self.names.iter().position(|known| known == name) {
            _ if name == first => 0,
            Some(known) => known + 1,
            None if self.names.len() + 1 >= NAMES_MAX => return Err(RenameError::TooMany),
            None => {
                self.names.push(name.to_owned());
                self.names.len()
            }
        };
        self.current = u32::try_from(index).unwrap_or(u32::MAX);
        Ok(())
    }

    /// Forgets a former name.
    pub(super) fn forget(&mut self, first: &str, name: &str) -> Result<(), RenameError> {
        let name = name.to_owned();
        if self.current(first) == name {
            return Err(RenameError::IsCurrent(name));
        }
        if first == name {
            return Err(RenameError::IsFirst(name));
        }
        let Some(known) = self.names.iter().position(|known| *known == name) else {
            return Err(RenameError::NotFormer(name));
        };
        self.names.remove(known);
        let current = usize::try_from(self.current).unwrap_or(usize::MAX);
        if current > known + 1 {
            self.current -= 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_name_stays_until_it_is_forgotten() {
        let mut names = LaterNames::default();
        for name in ["b", "c", "b"] {
            names.set_current("a", name).unwrap();
            assert_eq!(names.current("a"), name);
        }
        assert_eq!(names.iter().collect::<Vec<_>>(), ["b", "c"]);
        names.set_current("a", "c").unwrap();
        names.forget("a", "b").unwrap();
        assert_eq!(names.current("a"), "c");
        let refused = |name: &str| names.clone().forget("a", name).unwrap_err();
        assert_eq!(refused("a"), RenameError::IsFirst("a".into()));
        assert_eq!(refused("b"), RenameError::NotFormer("b".into()));
        assert_eq!(refused("c"), RenameError::IsCurrent("c".into()));
        names.set_current("a", "a").unwrap();
        assert_eq!(names.current("a"), "a");
    }

    #[test]
    fn the_number_of_names_is_bounded_and_known_ones_can_return() {
        let mut names = LaterNames::default();
        for number in 1..NAMES_MAX {
            names.set_current("a", &format!("a{number}")).unwrap();
        }
        assert_eq!(names.set_current("a", "b"), Err(RenameError::TooMany));
        names.set_current("a", "a1").unwrap();
        assert_eq!(names.current("a"), "a1");
    }
}
