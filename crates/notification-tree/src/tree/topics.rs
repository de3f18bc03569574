//! The topics of a node and their events.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use super::alarms::JobId;
use crate::error::Error;
use crate::job::Job;
use crate::membership::{Contact, Membership};
use crate::spare::Spare;
use crate::topic::{Publisher, Record, Topic};
use crate::window::Window;

/// Topics by index. Jobs are named by the index, so an entry stays when its topic is left.
#[derive(Debug, Default)]
pub(super) struct Topics {
    topics: Vec<Topic>,
    pub(super) spare: Spare,
}

impl Index<usize> for Topics {
    type Output = Topic;

    fn index(&self, at: usize) -> &Topic {
        &self.topics[at]
    }
}

impl IndexMut<usize> for Topics {
    fn index_mut(&mut self, at: usize) -> &mut Topic {
        &mut self.topics[at]
    }
}

impl Topics {
    pub(super) fn len(&self) -> usize {
        self.topics.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Topic> {
        self.topics.iter()
    }

    /// The index of a topic.
    pub(super) fn find(&self, topic: u64) -> Option<usize> {
        let is_it = |it: &Topic| it.id == topic && !it.is_vacant;
        self.topics.iter().position(is_it)
    }

    pub(super) fn topic_mut(&mut self, id: JobId) -> Option<&mut Topic> {
        self.topics.get_mut(id.topic as usize)
    }

    pub(super) fn record(&self, id: JobId) -> Option<&Record> {
        self.topics.get(id.topic as usize)?.record(id.serial)
    }

    pub(super) fn record_mut(&mut self, id: JobId) -> Option<&mut Record> {
        self.topics
            .get_mut(id.topic as usize)?
            .record_mut(id.serial)
    }

    pub(super) fn job(&self, id: JobId) -> Option<&Job> {
        self.record(id)?.jobs.get(usize::from(id.job))
    }

    pub(super) fn job_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.record_mut(id)?.jobs.get_mut(usize::from(id.job))
    }

    /// Whether missed events of a topic are pulled.
    pub(super) fn is_pulling(&self) -> bool {
        let is_pulled = |topic: &Topic| topic.pull_attempts.is_some();
        self.topics.iter().any(is_pulled)
    }

    /// Adds a topic. A known one only gets its source's new address.
    ///
    /// # Errors
    /// There are `topics_max` already.
    pub(super) fn add(
        &mut self,
        topic: u64,
        source: Contact,
        publisher: Option<Publisher>,
        window: Window,
        topics_max: usize,
    ) -> Result<(), Error> {
        if let Some(at) = self.find(topic) {
            self.topics[at].source = source;
            return Ok(());
        }
        let mut fresh = Topic::new(topic, source, publisher, window);
        if let Some(vacant) = self.topics.iter_mut().find(|it| it.is_vacant) {
            // Serial numbers go on, so that no earlier name of a job means a new one.
            fresh.first_serial = vacant.first_serial;
            *vacant = fresh;
            return Ok(());
        }
        if self.topics.len() >= topics_max {
            return Err(Error::Full {
                what: "topic",
                most: topics_max,
            });
        }
        self.topics.push(fresh);
        Ok(())
    }

    /// Leaves a topic. Returns how many open jobs its events had.
    ///
    /// # Errors
    /// The topic is unknown.
    pub(super) fn leave(&mut self, topic: u64) -> Result<usize, Error> {
        let at = self.find(topic).ok_or(Error::Topic { topic })?;
        let left = &mut self.topics[at];
        left.is_vacant = true;
        left.publisher = None;
        left.pull_attempts = None;
        left.versions.clear();
        let mut open_jobs = 0;
        while !self.topics[at].records.is_empty() {
            open_jobs += self.forget_oldest(at);
        }
        Ok(open_jobs)
    }

    /// Adopts a version of a membership; `contact` is this node.
    ///
    /// # Errors
    /// The topic is unknown, or a newer version is known.
    pub(super) fn adopt(
        &mut self,
        membership: Arc<Membership>,
        number: Option<u32>,
        contact: &Contact,
    ) -> Result<(), Error> {
        let topic = membership.topic();
        let at = self.find(topic).ok_or(Error::Topic { topic })?;
        self.topics[at].adopt(membership, number, contact)
    }

    /// Keeps an event; returns the name of its first job.
    pub(super) fn push(&mut self, at: usize, record: Record) -> JobId {
        let topic = &mut self.topics[at];
        topic.records.push_back(record);
        JobId {
            topic: at as u32,
            serial: topic.first_serial + topic.records.len() as u64 - 1,
            job: 0,
        }
    }

    /// Drops the oldest event. Returns how many open jobs it had.
    pub(super) fn forget_oldest(&mut self, at: usize) -> usize {
        let topic = &mut self.topics[at];
        let Some(record) = topic.records.pop_front() else {
            return 0;
        };
        topic.first_serial += 1;
        self.forget(record)
    }

    /// Drops the newest event. Returns its parent, and how many open jobs it had.
    pub(super) fn forget_newest(&mut self, at: usize) -> Option<(u32, usize)> {
        let record = self.topics[at].records.pop_back()?;
        Some((record.parent, self.forget(record)))
    }

    fn forget(&mut self, record: Record) -> usize {
        let open_jobs = record.jobs.iter().filter(|job| !job.is_done).count();
        self.spare.put_record(record);
        open_jobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_left_topic_makes_room_for_another() {
        let mut topics = Topics::default();
        let source = Contact {
            address: ([10, 0, 0, 1], 1).into(),
            key: [0; 32],
        };
        let add =
            |topics: &mut Topics, id| topics.add(id, source, None, Window::default(), 2).is_ok();
        assert!(add(&mut topics, 1) && add(&mut topics, 2) && add(&mut topics, 1));
        assert!(!add(&mut topics, 3));
        topics[0].first_serial = 40;
        assert_eq!(topics.leave(1), Ok(0));
        assert_eq!(topics.leave(1), Err(Error::Topic { topic: 1 }));
        assert!(add(&mut topics, 3));
        assert_eq!((topics.find(3), topics.find(1)), (Some(0), None));
        assert_eq!(topics[0].first_serial, 40, "names of jobs stay unique");
    }
}
