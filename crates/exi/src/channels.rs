//! Values by the channel they travel in (9.2): one for each name, in the order of its first value.

use alloc::vec::Vec;

use crate::schema::NONE;

/// Values that share a compressed stream, at most (9.3).
const SMALL: u32 = 100;

/// The values of one name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    pub(crate) name: u32,
    first: u32,
    last: u32,
    count: u32,
}

/// Which value of a block is in which channel. Values are numbers; their channel is a chain.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    list: Vec<Channel>,
    next: Vec<u32>,
    /// The channel of a name, by its number.
    of_name: Vec<u32>,
    values: u32,
}

impl Channels {
    pub(crate) fn clear(&mut self) {
        for channel in self.list.drain(..) {
            self.of_name[channel.name as usize] = NONE;
        }
        self.next.clear();
        self.values = 0;
    }

    /// How many values there are in all.
    pub(crate) fn values(&self) -> u32 {
        self.values
    }

    /// Appends a value to the channel of a name.
    pub(crate) fn add(&mut self, name: u32, value: u32) {
        let (place, number) = (name as usize, value as usize);
        if self.of_name.len() <= place {
            self.of_name.resize(place + 1, NONE);
        }
        if self.next.len() <= number {
            self.next.resize(number + 1, NONE);
        }
        self.values += 1;
        match self.list.get_mut(self.of_name[place] as usize) {
            Some(channel) => {
                self.next[channel.last as usize] = value;
                channel.last = value;
                channel.count += 1;
            }
            None => {
                self.of_name[place] = self.list.len() as u32;
                self.list.push(Channel {
                    name,
                    first: value,
                    last: value,
                    count: 1,
                });
            }
        }
    }

    /// Whether all values travel behind the structure, in its stream.
    pub(crate) fn few(&self) -> bool {
        self.values <= SMALL
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn channel(&self, at: usize) -> Channel {
        self.list[at]
    }

    /// Whether a channel shares its stream with others.
    pub(crate) fn is_small(&self, channel: &Channel) -> bool {
        self.few() || channel.count <= SMALL
    }

    /// The first value of a channel; each has one.
    pub(crate) fn first(channel: &Channel) -> u32 {
        channel.first
    }

    /// The value behind one in its channel, or [`NONE`].
    pub(crate) fn behind(&self, value: u32) -> u32 {
        self.next[value as usize]
    }
}
