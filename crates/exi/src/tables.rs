//! String tables of one stream (7.3): the names added to those of the schema, and the values.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::hash::BuildHasher;

use hashbrown::HashTable;

use crate::error::Cause;
use crate::schema::{NONE, Schema, Span, URI_EMPTY, URI_XML, URI_XSI};

type Hasher = foldhash::fast::FixedState;

fn add(text: &mut String, piece: &str) -> Span {
    let start = text.len() as u32;
    text.push_str(piece);
    let length = piece.len() as u32;
    Span { start, length }
}

fn piece(text: &str, span: Span) -> &str {
    let start = span.start as usize;
    &text[start..start + span.length as usize]
}

/// The URI, local-name and prefix partitions. Numbers below those of the schema refer to its
/// entries.
#[derive(Debug, Default)]
pub(crate) struct Names {
    text: String,
    uris: Vec<Span>,
    /// Names added to the schema's: namespace and local part.
    names: Vec<(u32, Span)>,
    /// For each namespace, the names added to the schema's, in the order of their identifiers.
    locals: Vec<Vec<u32>>,
    /// For each namespace, the prefixes added to the initial one.
    prefixes: Vec<Vec<Span>>,
    index: HashTable<u32>,
    hasher: Hasher,
    bytes_max: usize,
    /// The namespace of the last lookup, which the next lookup probably needs too.
    last_uri: Cell<u32>,
}

impl Names {
    /// Resets the table to its state at the start of a stream.
    pub(crate) fn reset(&mut self, schema: &Schema, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.text.clear();
        self.uris.clear();
        self.names.clear();
        self.index.clear();
        self.locals.iter_mut().for_each(Vec::clear);
        self.prefixes.iter_mut().for_each(Vec::clear);
        // Keep the empty lists of other namespaces for reuse.
        let count = schema.uris.len().max(self.locals.len());
        self.locals.resize_with(count, Vec::new);
        self.prefixes.resize_with(count, Vec::new);
    }

    fn check_bytes(&self, more: usize) -> Result<(), Cause> {
        if self.text.len() + more > self.bytes_max {
            return Err(Cause::limit("table_bytes", self.bytes_max as u64));
        }
        Ok(())
    }

    pub(crate) fn uri_count(&self, schema: &Schema) -> u32 {
        (schema.uris.len() + self.uris.len()) as u32
    }

    #[inline]
    pub(crate) fn uri<'a>(&'a self, schema: &'a Schema, uri: u32) -> &'a str {
        match (uri as usize).checked_sub(schema.uris.len()) {
            None => schema.uri(uri),
            Some(at) => piece(&self.text, self.uris[at]),
        }
    }

    pub(crate) fn find_uri(&self, schema: &Schema, uri: &str) -> Option<u32> {
        if uri.is_empty() {
            return Some(URI_EMPTY);
        }
        let (last, count) = (self.last_uri.get(), self.uri_count(schema));
        if last < count && self.uri(schema, last) == uri {
            return Some(last);
        }
        let found = (0..count).find(|at| self.uri(schema, *at) == uri)?;
        self.last_uri.set(found);
        Some(found)
    }

    pub(crate) fn add_uri(&mut self, schema: &Schema, uri: &str) -> Result<u32, Cause> {
        self.check_bytes(uri.len())?;
        let span = add(&mut self.text, uri);
        self.uris.push(span);
        let at = self.uri_count(schema) as usize;
        if self.locals.len() < at {
            self.locals.push(Vec::new());
            self.prefixes.push(Vec::new());
        }
        Ok(at as u32 - 1)
    }

    /// Number of local names in the partition of a namespace.
    pub(crate) fn local_count(&self, schema: &Schema, uri: u32) -> u32 {
        let known = schema.uris.get(uri as usize).map_or(0, |uri| uri.names);
        known + self.locals[uri as usize].len() as u32
    }

    /// The name with a compact identifier.
    pub(crate) fn name_by_identifier(
        &self,
        schema: &Schema,
        uri: u32,
        identifier: u32,
    ) -> Option<u32> {
        let known = schema.uris.get(uri as usize);
        let count = known.map_or(0, |uri| uri.names);
        match identifier.checked_sub(count) {
            None => known.map(|uri| uri.first_name + identifier),
            Some(at) => self.locals[uri as usize].get(at as usize).copied(),
        }
    }

    /// The compact identifier of a name in its namespace's partition.
    pub(crate) fn local_identifier(&self, schema: &Schema, name: u32) -> u32 {
        match (name as usize).checked_sub(schema.names.len()) {
            None => {
                let uri = schema.names[name as usize].uri;
                name - schema.uris[uri as usize].first_name
            }
            Some(at) => {
                let uri = self.names[at].0;
                let known = schema.uris.get(uri as usize).map_or(0, |uri| uri.names);
                let locals = &self.locals[uri as usize];
                // The names of one namespace are numbered in the order in which they were added, so
                // the list is sorted.
                known + locals.binary_search(&name).map_or(0, |at| at as u32)
            }
        }
    }

    pub(crate) fn uri_of(&self, schema: &Schema, name: u32) -> u32 {
        match (name as usize).checked_sub(schema.names.len()) {
            None => schema.names[name as usize].uri,
            Some(at) => self.names[at].0,
        }
    }

    /// The namespace and the local part of a name.
    #[inline]
    pub(crate) fn name<'a>(&'a self, schema: &'a Schema, name: u32) -> (u32, &'a str) {
        match schema.names.get(name as usize) {
            Some(known) => (known.uri, schema.span(known.local)),
            None => {
                let (uri, span) = self.names[name as usize - schema.names.len()];
                (uri, piece(&self.text, span))
            }
        }
    }

    pub(crate) fn local<'a>(&'a self, schema: &'a Schema, name: u32) -> &'a str {
        match (name as usize).checked_sub(schema.names.len()) {
            None => schema.local(name),
            Some(at) => piece(&self.text, self.names[at].1),
        }
    }

    pub(crate) fn find(&self, schema: &Schema, uri: u32, local: &str) -> Option<u32> {
        if (uri as usize) < schema.uris.len()
            && let Some(name) = schema.find(uri, local)
        {
            return Some(name);
        }
        if self.names.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one((uri, local));
        let base = schema.names.len() as u32;
        let same = |at: &u32| {
            let (other, span) = self.names[*at as usize];
            other == uri && piece(&self.text, span) == local
        };
        self.index.find(hash, same).map(|at| base + at)
    }

    /// Adds a name. Its number is one above the last one.
    pub(crate) fn add(&mut self, schema: &Schema, uri: u32, local: &str) -> Result<u32, Cause> {
        self.check_bytes(local.len())?;
        let at = self.names.len() as u32;
        let span = add(&mut self.text, local);
        self.names.push((uri, span));
        let name = schema.names.len() as u32 + at;
        self.locals[uri as usize].push(name);
        let (names, text, hasher) = (&self.names, &self.text, &self.hasher);
        let hash_of = |at: &u32| {
            let (uri, span) = names[*at as usize];
            hasher.hash_one((uri, piece(text, span)))
        };
        let hash = hash_of(&at);
        self.index.insert_unique(hash, at, hash_of);
        Ok(name)
    }

    fn initial_prefix(uri: u32) -> Option<&'static str> {
        match uri {
            URI_EMPTY => Some(""),
            URI_XML => Some("xml"),
            URI_XSI => Some("xsi"),
            _ => None,
        }
    }

    pub(crate) fn prefix_count(&self, uri: u32) -> u32 {
        let initial = u32::from(Self::initial_prefix(uri).is_some());
        initial + self.prefixes[uri as usize].len() as u32
    }

    pub(crate) fn prefix(&self, uri: u32, identifier: u32) -> Option<&str> {
        let prefixes = &self.prefixes[uri as usize];
        let at = match Self::initial_prefix(uri) {
            Some(prefix) if identifier == 0 => return Some(prefix),
            Some(_) => identifier - 1,
            None => identifier,
        };
        let span = prefixes.get(at as usize)?;
        Some(piece(&self.text, *span))
    }

    pub(crate) fn find_prefix(&self, uri: u32, prefix: &str) -> Option<u32> {
        (0..self.prefix_count(uri)).find(|at| self.prefix(uri, *at) == Some(prefix))
    }

    pub(crate) fn add_prefix(&mut self, uri: u32, prefix: &str) -> Result<(), Cause> {
        self.check_bytes(prefix.len())?;
        let span = add(&mut self.text, prefix);
        self.prefixes[uri as usize].push(span);
        Ok(())
    }
}

/// A value in the string table.
#[derive(Clone, Copy, Debug)]
struct Entry {
    span: Span,
    name: u32,
    local: u32,
}

/// The value partitions: the global one, and a local one for each name (7.3.3).
#[derive(Debug, Default)]
pub(crate) struct ValuePartitions {
    text: String,
    /// Bytes of `text` that no entry refers to.
    unused_bytes: usize,
    entries: Vec<Entry>,
    /// The identifier of the next value.
    next_identifier: u32,
    /// For each name, the entries of its local partition. [`NONE`] marks an unassigned identifier.
    partitions: Vec<Vec<u32>>,
    /// Names with a non-empty local partition.
    used_partitions: Vec<u32>,
    index: HashTable<u32>,
    is_indexed: bool,
    /// Local partitions are not used (EXI Profile).
    pub(crate) global_only: bool,
    hasher: Hasher,
    capacity: u32,
    length_max: u32,
    bytes_max: usize,
}

/// The partition in which a value was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueHit {
    /// The local partition of its name.
    Local { identifier: u32, count: u32 },
    /// The global partition.
    Global { identifier: u32, count: u32 },
}

impl ValuePartitions {
    /// Resets the partitions to their state at the start of a stream. `indexed` is true if values
    /// are looked up (encoding) and not only read by identifier (decoding).
    pub(crate) fn reset(
        &mut self,
        indexed: bool,
        capacity: Option<u32>,
        length_max: Option<u32>,
        bytes_max: usize,
    ) {
        self.text.clear();
        self.unused_bytes = 0;
        self.entries.clear();
        self.next_identifier = 0;
        for name in self.used_partitions.drain(..) {
            self.partitions[name as usize].clear();
        }
        self.index.clear();
        self.is_indexed = indexed;
        self.capacity = capacity.unwrap_or(NONE);
        self.length_max = length_max.unwrap_or(NONE);
        self.bytes_max = bytes_max;
    }

    fn partition(&self, name: u32) -> &[u32] {
        self.partitions
            .get(name as usize)
            .map_or(&[], Vec::as_slice)
    }

    pub(crate) fn local_count(&self, name: u32) -> u32 {
        self.partition(name).len() as u32
    }

    pub(crate) fn global_count(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The global identifier of a value in the local partition of a name.
    pub(crate) fn local_entry(&self, name: u32, identifier: u32) -> Option<u32> {
        let entry = *self.partition(name).get(identifier as usize)?;
        (entry != NONE).then_some(entry)
    }

    /// The value with a valid global identifier.
    pub(crate) fn by_identifier(&self, identifier: u32) -> &str {
        piece(&self.text, self.entries[identifier as usize].span)
    }

    /// Returns true if a value of this length enters the table (7.3.3).
    pub(crate) fn accepts_length(&self, characters: usize) -> bool {
        characters > 0 && characters as u64 <= u64::from(self.length_max) && self.capacity > 0
    }

    /// Looks up a value of this length and adds it if it is missing.
    pub(crate) fn find_or_add(
        &mut self,
        name: u32,
        value: &str,
        characters: usize,
    ) -> Result<Option<ValueHit>, Cause> {
        if !self.accepts_length(characters) {
            return Ok(None);
        }
        let hash = self.hasher.hash_one(value);
        let same = |at: &u32| piece(&self.text, self.entries[*at as usize].span) == value;
        if let Some(at) = self.index.find(hash, same).copied() {
            let entry = self.entries[at as usize];
            return Ok(Some(if entry.name == name && !self.global_only {
                let (identifier, count) = (entry.local, self.local_count(name));
                ValueHit::Local { identifier, count }
            } else {
                let (identifier, count) = (at, self.global_count());
                ValueHit::Global { identifier, count }
            }));
        }
        let span = add(&mut self.text, value);
        let at = self.insert(name, span)?;
        let (entries, text, hasher) = (&self.entries, &self.text, &self.hasher);
        let hash_of = |at: &u32| hasher.hash_one(piece(text, entries[*at as usize].span));
        self.index.insert_unique(hash, at, hash_of);
        Ok(None)
    }

    /// The buffer to which the caller appends a value before [`ValuePartitions::insert_appended`].
    pub(crate) fn text_buffer(&mut self) -> &mut String {
        &mut self.text
    }

    /// Adds the value that was appended to the text at `start`; returns its identifier.
    pub(crate) fn insert_appended(&mut self, name: u32, start: usize) -> Result<u32, Cause> {
        let length = (self.text.len() - start) as u32;
        let start = start as u32;
        self.insert(name, Span { start, length })
    }

    fn insert(&mut self, name: u32, span: Span) -> Result<u32, Cause> {
        if self.text.len() > self.bytes_max {
            return Err(Cause::limit("table_bytes", self.bytes_max as u64));
        }
        let at = self.next_identifier;
        if self.partitions.len() <= name as usize {
            self.partitions.resize_with(name as usize + 1, Vec::new);
        }
        let partition = &mut self.partitions[name as usize];
        if partition.is_empty() {
            self.used_partitions.push(name);
        }
        let local = partition.len() as u32;
        partition.push(at);
        let entry = Entry { span, name, local };
        match self.entries.get(at as usize) {
            Some(old) => {
                let old = *old;
                self.remove(at, old);
                self.entries[at as usize] = entry;
                self.compact_if_worthwhile();
            }
            None => self.entries.push(entry),
        }
        self.next_identifier = at + 1;
        if self.next_identifier == self.capacity {
            self.next_identifier = 0;
        }
        Ok(at)
    }

    /// Removes the value whose identifier is reassigned.
    fn remove(&mut self, at: u32, old: Entry) {
        self.partitions[old.name as usize][old.local as usize] = NONE;
        if self.is_indexed {
            let hash = self.hasher.hash_one(piece(&self.text, old.span));
            if let Ok(found) = self.index.find_entry(hash, |other| *other == at) {
                found.remove();
            }
        }
        self.unused_bytes += old.span.length as usize;
    }

    fn compact_if_worthwhile(&mut self) {
        if self.unused_bytes > 4096 && self.unused_bytes > self.text.len() / 2 {
            self.compact();
        }
    }

    /// Discards the text of replaced values.
    fn compact(&mut self) {
        let mut text =
            String::with_capacity(self.text.len() - self.unused_bytes.min(self.text.len()));
        for entry in &mut self.entries {
            entry.span = add(&mut text, piece(&self.text, entry.span));
        }
        self.text = text;
        self.unused_bytes = 0;
    }
}
