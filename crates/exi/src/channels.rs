//! Value channels (9.2): one for each name, in the order of its first value.

use alloc::vec::Vec;

use crate::schema::NONE;

/// Maximum number of values of a channel, or of a block, that shares a compressed stream (9.3).
const SMALL_CHANNEL_MAX: u32 = 100;

/// The values of one name, as a linked list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    pub(crate) name: u32,
    first: u32,
    last: u32,
    count: u32,
}

/// Assigns the values of a block to channels. Values are numbers; each channel is a linked list.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    list: Vec<Channel>,
    next: Vec<u32>,
    /// Index of the channel of each name.
    channel_of_name: Vec<u32>,
    value_count: u32,
}

impl Channels {
    pub(crate) fn clear(&mut self) {
        for channel in self.list.drain(..) {
            self.channel_of_name[channel.name as usize] = NONE;
        }
        self.next.clear();
        self.value_count = 0;
    }

    /// Number of values in all channels.
    pub(crate) fn value_count(&self) -> u32 {
        self.value_count
    }

    /// Appends a value to the channel of a name.
    pub(crate) fn add(&mut self, name: u32, value: u32) {
        let (name_index, number) = (name as usize, value as usize);
        if self.channel_of_name.len() <= name_index {
            self.channel_of_name.resize(name_index + 1, NONE);
        }
        if self.next.len() <= number {
            self.next.resize(number + 1, NONE);
        }
        self.value_count += 1;
        match self.list.get_mut(self.channel_of_name[name_index] as usize) {
            Some(channel) => {
                self.next[channel.last as usize] = value;
                channel.last = value;
                channel.count += 1;
            }
            None => {
                self.channel_of_name[name_index] = self.list.len() as u32;
                self.list.push(Channel {
                    name,
                    first: value,
                    last: value,
                    count: 1,
                });
            }
        }
    }

    /// Returns true if all values follow the structure in one compressed stream.
    pub(crate) fn share_one_stream(&self) -> bool {
        self.value_count <= SMALL_CHANNEL_MAX
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn channel(&self, at: usize) -> Channel {
        self.list[at]
    }

    /// Returns true if a channel shares its compressed stream with others.
    pub(crate) fn is_small(&self, channel: &Channel) -> bool {
        self.share_one_stream() || channel.count <= SMALL_CHANNEL_MAX
    }

    /// The first value of a channel, which is never empty.
    pub(crate) fn first_value(channel: &Channel) -> u32 {
        channel.first
    }

    /// The next value in the same channel, or [`NONE`].
    pub(crate) fn next_value(&self, value: u32) -> u32 {
        self.next[value as usize]
    }
}
