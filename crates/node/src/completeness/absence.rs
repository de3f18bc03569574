//! When the source of a stream was away: silence that is not a loss.

use std::collections::BTreeSet;

use super::ledger::{NODE, SourceEntry};

/// A time in which a stream's source was away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Absence {
    /// The source's key, or [`NODE`] while the node itself did not run.
    pub(super) who: String,
    pub(super) cause: String,
    /// Nanoseconds since 1970.
    pub(super) from: i64,
    /// The end; none while it lasts.
    pub(super) to: Option<i64>,
}

/// The absences of one stream's source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Absences {
    /// Oldest first, without overlaps.
    pub(super) absences: Vec<Absence>,
    /// From when on it is known whether the source was there; none if that was never recorded.
    pub(super) known_since: Option<i64>,
}

/// What is known of the source at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Unknown,
    Present,
    Away {
        who: String,
        cause: String,
        from: i64,
    },
}

/// Follows the record of sources, oldest entry first, for a stream that belongs to `source` now.
pub(super) fn absences(stream: &str, source: &str, entries: &[SourceEntry]) -> Absences {
    let claims = entries.iter().filter_map(|entry| match entry {
        SourceEntry::Claimed {
            stream: of, key, ..
        } if of == stream => Some(key.as_str()),
        _ => None,
    });
    let mut follower = Follower {
        // Before the first claim on record it belonged to the same source, as far as is known.
        key: claims.clone().next().unwrap_or(source).to_owned(),
        state: State::Unknown,
        present: BTreeSet::new(),
        node_down: None,
        found: Absences::default(),
    };
    for entry in entries {
        follower.follow(stream, entry);
    }
    follower.end()
}

struct Follower {
    key: String,
    state: State,
    /// The sources that are there, also those of other streams: one of them may take the stream over.
    present: BTreeSet<String>,
    /// Why and since when the node does not run.
    node_down: Option<(String, i64)>,
    found: Absences,
}

impl Follower {
    fn follow(&mut self, stream: &str, entry: &SourceEntry) {
        if let SourceEntry::Changed {
            key, is_present, ..
        } = entry
        {
            match is_present {
                // No source is there before it is found in this run.
                true if key == NODE => self.present.clear(),
                true => drop(self.present.insert(key.clone())),
                false => drop(self.present.remove(key)),
            }
        }
        match entry {
            SourceEntry::Claimed {
                stream: of,
                key,
                at,
            } if of == stream => {
                self.key.clone_from(key);
                if self.present.contains(key) {
                    self.found.known_since.get_or_insert(*at);
                    self.end_absence(*at);
                    self.state = State::Present;
                }
            }
            SourceEntry::Claimed { .. } => {}
            SourceEntry::Changed {
                key,
                is_present,
                cause,
                at,
            } if key == NODE => match is_present {
                true => self.node_up(*at),
                false => self.node_down(cause, *at),
            },
            SourceEntry::Changed {
                key,
                is_present,
                cause,
                at,
            } if *key == self.key => {
                self.found.known_since.get_or_insert(*at);
                match (is_present, &self.state) {
                    (true, _) => {
                        self.end_absence(*at);
                        self.state = State::Present;
                    }
                    (false, State::Away { who, from, .. }) => {
                        // The last cause says most: a subscription that ends comes before a Bye.
                        let (who, from, cause) = (who.clone(), *from, cause.clone());
                        self.state = State::Away { who, cause, from };
                    }
                    (false, _) => {
                        let (who, cause) = (key.clone(), cause.clone());
                        self.state = State::Away {
                            who,
                            cause,
                            from: *at,
                        };
                    }
                }
            }
            SourceEntry::Changed { .. } => {}
        }
    }

    /// A source that is away for its own reason stays away for it after the node's absence.
    fn node_down(&mut self, cause: &str, at: i64) {
        self.end_absence(at);
        self.node_down.get_or_insert((cause.to_owned(), at));
    }

    fn node_up(&mut self, at: i64) {
        if let Some((cause, from)) = self.node_down.take() {
            self.found.known_since.get_or_insert(from);
            self.add(NODE, cause, from, Some(at));
        }
        if self.state == State::Present {
            let cause = "not found again since the node started".to_owned();
            let who = self.key.clone();
            self.state = State::Away {
                who,
                cause,
                from: at,
            };
        } else if let State::Away { from, .. } = &mut self.state {
            *from = at;
        }
    }

    fn end_absence(&mut self, at: i64) {
        if let State::Away { who, cause, from } = self.state.clone() {
            self.add(&who, cause, from, Some(at));
        }
    }

    fn add(&mut self, who: &str, cause: String, from: i64, to: Option<i64>) {
        if to.is_none_or(|to| to > from) {
            self.found.absences.push(Absence {
                who: who.to_owned(),
                cause,
                from,
                to,
            });
        }
    }

    fn end(mut self) -> Absences {
        if let Some((cause, from)) = self.node_down.take() {
            self.add(NODE, cause, from, None);
        } else if let State::Away { who, cause, from } = self.state.clone() {
            self.add(&who, cause, from, None);
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(key: &str, is_present: bool, cause: &str, at: i64) -> SourceEntry {
        SourceEntry::Changed {
            key: key.to_owned(),
            is_present,
            cause: cause.to_owned(),
            at,
        }
    }

    fn claimed(key: &str, at: i64) -> SourceEntry {
        SourceEntry::Claimed {
            stream: "s".to_owned(),
            key: key.to_owned(),
            at,
        }
    }

    fn found(entries: &[SourceEntry], source: &str) -> Vec<(String, String, i64, Option<i64>)> {
        let found = absences("s", source, entries).absences;
        let flat = found
            .into_iter()
            .map(|it| (it.who, it.cause, it.from, it.to));
        flat.collect()
    }

    fn wanted(all: &[(&str, &str, i64, Option<i64>)]) -> Vec<(String, String, i64, Option<i64>)> {
        let owned = all
            .iter()
            .map(|(who, cause, from, to)| ((*who).to_owned(), (*cause).to_owned(), *from, *to));
        owned.collect()
    }

    #[test]
    fn a_source_is_away_until_it_is_back_and_nothing_is_said_before_it_was_known() {
        let entries = [
            changed(NODE, true, "", 1),
            changed("d", true, "", 5),
            changed("other", false, "x", 6),
            changed("d", false, "bye", 10),
            changed("d", false, "again", 11),
            changed("d", true, "", 20),
            changed("d", false, "no answer", 30),
        ];
        let all = [("d", "again", 10, Some(20)), ("d", "no answer", 30, None)];
        assert_eq!(found(&entries, "d"), wanted(&all));
        assert_eq!(absences("s", "d", &entries).known_since, Some(5));
        assert_eq!(found(&entries, "e"), []);
    }

    #[test]
    fn while_the_node_does_not_run_it_is_the_one_that_is_away() {
        let entries = [
            changed(NODE, true, "", 1),
            changed("d", true, "", 5),
            changed(NODE, false, "shut down", 10),
            changed(NODE, true, "", 20),
            changed("d", true, "", 25),
            changed("d", false, "bye", 30),
            changed(NODE, false, "crash", 40),
            changed(NODE, true, "", 50),
        ];
        let again = "not found again since the node started";
        let all = [
            (NODE, "shut down", 10, Some(20)),
            ("d", again, 20, Some(25)),
            ("d", "bye", 30, Some(40)),
            (NODE, "crash", 40, Some(50)),
            ("d", "bye", 50, None),
        ];
        assert_eq!(found(&entries, "d"), wanted(&all));
    }

    #[test]
    fn a_replaced_device_leaves_one_gap_with_the_cause_of_the_first() {
        let entries = [
            claimed("old", 4),
            changed("old", true, "", 5),
            changed("old", false, "unplugged", 10),
            changed("new", true, "", 14),
            claimed("new", 15),
            changed("new", true, "", 15),
            changed("old", false, "gone for good", 17),
        ];
        let all = [("old", "unplugged", 10, Some(15))];
        assert_eq!(found(&entries, "new"), wanted(&all));
        // A device that is already there ends the gap when it takes the stream over.
        assert_eq!(found(&entries[..5], "new"), wanted(&all));
        let mut restarted = entries[..4].to_vec();
        restarted.extend([changed(NODE, true, "", 14), claimed("new", 15)]);
        let open = [("old", "unplugged", 14, None)];
        assert_eq!(found(&restarted, "new"), wanted(&open));
    }
}
