//! Where a stream stands in its grammars, and what may come next (8).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::bits::width;
use crate::datatype::Representations;
use crate::error::Cause;
use crate::limits::Limits;
use crate::options::{Options, Profile};
use crate::schema::{COUNTED, NONE, Repeat, Representation, Schema, Shape, Type};
use crate::tables::Names;

/// Where an element, or the document, stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// DocContent, in front of the root element.
    Document,
    /// DocEnd, behind it.
    DocumentEnd,
    /// FragmentContent.
    Fragment,
    /// Behind the end.
    Ended,
    /// A state of the schema.
    Schema(u32),
    /// StartTagContent of a built-in grammar.
    StartTag(u32),
    /// ElementContent of a built-in grammar.
    Content(u32),
}

/// An open element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) name: u32,
    pub(crate) at: At,
    /// What xsi:nil leads to.
    pub(crate) empty: u32,
    /// Strict grammars have xsi:type at the entry.
    pub(crate) cast: bool,
    /// Strict grammars have xsi:nil at the entry.
    pub(crate) nil: bool,
    /// How many copies of a counted particle are behind it.
    pub(crate) count: u32,
}

/// The first parts of event codes in a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstPart {
    /// The first of its productions, and how many there are.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// One more code leads to the second part.
    pub(crate) escapes: bool,
    /// Bits of a code.
    pub(crate) bits: u32,
}

/// A production that a built-in grammar has learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learnt {
    Element(u32),
    Attribute(u32),
    Characters,
    End,
    /// Counted by every reader, and never used (EXI Profile, 3.1).
    Unused(Unused),
}

/// What is learnt without being used: one of the kinds that are learnt once, or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unused {
    Type,
    Characters,
    End,
    Other,
}

/// A built-in element grammar (8.4.3). The newest production has event code 0, hence stands last.
#[derive(Clone, Debug, Default)]
pub(crate) struct BuiltIn {
    pub(crate) start_tag: Vec<Learnt>,
    pub(crate) content: Vec<Learnt>,
}

/// What the second part of an event code leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    End,
    XsiType,
    XsiNil,
    AttributeAny,
    /// Attributes with untyped values; a third part follows.
    AttributeUntyped,
    Namespace,
    SelfContained,
    ElementAny,
    Characters,
    EntityReference,
    DocType,
    Comment,
    ProcessingInstruction,
    /// Comments and processing instructions, told apart by a third part.
    CommentOrInstruction,
}

impl Second {
    const COUNT: usize = Self::CommentOrInstruction as usize + 1;
}

/// The second parts of a state, in order.
#[derive(Clone, Debug)]
pub(crate) struct Seconds {
    list: [Second; Second::COUNT],
    /// The place of each, or [`Seconds::MISSING`].
    places: [u8; Second::COUNT],
    count: u8,
    /// Bits that tell them apart.
    pub(crate) width: u32,
}

impl Default for Seconds {
    fn default() -> Self {
        Self {
            list: [Second::End; Second::COUNT],
            places: [Self::MISSING; Second::COUNT],
            count: 0,
            width: 0,
        }
    }
}

impl Seconds {
    const MISSING: u8 = u8::MAX;

    fn push(&mut self, second: Second) {
        self.places[second as usize] = self.count;
        self.list[usize::from(self.count)] = second;
        self.count += 1;
        self.width = width(u64::from(self.count));
    }

    /// One event code of the first part leads to them, if there are any.
    pub(crate) fn escapes(&self) -> usize {
        usize::from(self.count > 0)
    }

    /// The one of this code.
    pub(crate) fn of(&self, code: u32) -> Option<Second> {
        let list = &self.list[..usize::from(self.count)];
        list.get(code as usize).copied()
    }

    /// The code of this one.
    pub(crate) fn code(&self, second: Second) -> Option<u32> {
        let place = self.places[second as usize];
        (place != Self::MISSING).then_some(u32::from(place))
    }
}

impl Extend<Second> for Seconds {
    fn extend<I: IntoIterator<Item = Second>>(&mut self, seconds: I) {
        seconds.into_iter().for_each(|second| self.push(second));
    }
}

impl FromIterator<Second> for Seconds {
    fn from_iter<I: IntoIterator<Item = Second>>(seconds: I) -> Self {
        let mut all = Self::default();
        all.extend(seconds);
        all
    }
}

/// What is the same for all states of a kind, under the options of a stream.
#[derive(Debug, Default)]
struct Kinds {
    /// By entry, start tag and end of a schema's state.
    schema: [Seconds; 8],
    /// Of strict entries: by xsi:type and xsi:nil.
    strict: [Seconds; 4],
    start_tag: Seconds,
    content: Seconds,
    document: Seconds,
    document_end: Seconds,
}

/// Where a stream stands.
#[derive(Debug)]
pub(crate) struct Grammar {
    pub(crate) schema: Arc<Schema>,
    pub(crate) options: Options,
    pub(crate) names: Names,
    pub(crate) stack: Vec<Frame>,
    pub(crate) built_in: Vec<BuiltIn>,
    used: usize,
    /// The built-in grammar of a name.
    of_name: Vec<u32>,
    /// What the built-in fragment grammar has learnt (8.4.2).
    pub(crate) fragment: Vec<u32>,
    learnt: usize,
    /// Those that will be used again.
    kept: usize,
    /// What an encoder keeps to.
    pub(crate) profile: Option<Profile>,
    learnt_max: usize,
    depth_max: usize,
    kinds: Kinds,
    /// The kinds are those of the options.
    begun: bool,
    /// Other representations than the schema's.
    changed: Option<Box<[Representation]>>,
}

impl Representations for Grammar {
    fn representation(&self, datatype: u32) -> &Representation {
        match &self.changed {
            Some(changed) => &changed[datatype as usize],
            None => self.schema.representation(datatype),
        }
    }
}

/// What a body has learnt, put aside while a self-contained element has tables of its own.
#[derive(Debug)]
pub(crate) struct State {
    names: Names,
    stack: Vec<Frame>,
    built_in: Vec<BuiltIn>,
    used: usize,
    of_name: Vec<u32>,
    fragment: Vec<u32>,
}

impl Grammar {
    /// Puts aside what was learnt, and begins anew with a fragment.
    pub(crate) fn put_aside(&mut self, table_bytes: usize) -> State {
        let state = State {
            names: core::mem::take(&mut self.names),
            stack: core::mem::take(&mut self.stack),
            built_in: core::mem::take(&mut self.built_in),
            used: self.used,
            of_name: core::mem::take(&mut self.of_name),
            fragment: core::mem::take(&mut self.fragment),
        };
        let (learnt, kept) = (self.learnt, self.kept);
        self.restart(table_bytes);
        (self.learnt, self.kept) = (learnt, kept);
        self.top_mut().at = At::Fragment;
        state
    }

    /// Goes on with what was put aside.
    pub(crate) fn take_back(&mut self, state: State) {
        self.names = state.names;
        self.stack = state.stack;
        self.built_in = state.built_in;
        self.used = state.used;
        self.of_name = state.of_name;
        self.fragment = state.fragment;
    }

    pub(crate) fn new(schema: Arc<Schema>) -> Self {
        Self {
            schema,
            options: Options::default(),
            names: Names::default(),
            stack: Vec::new(),
            built_in: Vec::new(),
            used: 0,
            of_name: Vec::new(),
            fragment: Vec::new(),
            learnt: 0,
            kept: 0,
            profile: None,
            learnt_max: 0,
            depth_max: 0,
            kinds: Kinds::default(),
            begun: false,
            changed: None,
        }
    }

    /// As it is at the begin of a stream.
    pub(crate) fn begin(&mut self, options: &Options, limits: &Limits) -> Result<(), Cause> {
        options.check()?;
        if self.options != *options || !self.begun {
            self.begun = false;
            self.options.clone_from(options);
            self.kinds = Kinds::new(options);
            self.changed = crate::representation::changed(&self.schema, options)?;
            self.begun = true;
        }
        self.learnt_max = limits.productions;
        self.depth_max = limits.depth;
        self.restart(limits.table_bytes);
        Ok(())
    }

    /// Tables and grammars as at the begin of a body.
    pub(crate) fn restart(&mut self, table_bytes: usize) {
        self.names.reset(&self.schema, table_bytes);
        self.used = 0;
        self.of_name.clear();
        self.fragment.clear();
        self.learnt = 0;
        self.kept = 0;
        self.stack.clear();
        let at = if self.options.fragment {
            At::Fragment
        } else {
            At::Document
        };
        self.stack.push(Frame {
            name: NONE,
            at,
            empty: NONE,
            cast: false,
            nil: false,
            count: 0,
        });
    }

    #[inline]
    pub(crate) fn top(&self) -> &Frame {
        // The document's frame stays until the stream ends.
        &self.stack[self.stack.len() - 1]
    }

    #[inline]
    pub(crate) fn top_mut(&mut self) -> &mut Frame {
        let last = self.stack.len() - 1;
        &mut self.stack[last]
    }

    /// Second parts at the present place.
    pub(crate) fn seconds(&self) -> &Seconds {
        let frame = self.top();
        match frame.at {
            At::Document => &self.kinds.document,
            At::DocumentEnd | At::Fragment | At::Ended => &self.kinds.document_end,
            At::StartTag(_) => &self.kinds.start_tag,
            At::Content(_) => &self.kinds.content,
            At::Schema(state) => {
                let shape = self.schema.states[state as usize].shape;
                if !self.options.strict {
                    return &self.kinds.schema[index(shape)];
                }
                let entry = usize::from(shape.entry);
                let (cast, nil) = (usize::from(frame.cast), usize::from(frame.nil));
                &self.kinds.strict[entry * (cast + 2 * nil)]
            }
        }
    }

    /// The first parts of event codes in a state of the schema.
    #[inline]
    pub(crate) fn first_part(&self, state: u32) -> FirstPart {
        let state = &self.schema.states[state as usize];
        let frame = self.top();
        // In a strict grammar only xsi:type and xsi:nil have second parts.
        let escapes = !self.options.strict | (state.shape.entry & (frame.cast | frame.nil));
        FirstPart {
            first: state.first,
            count: state.count,
            escapes,
            bits: u32::from(state.widths[usize::from(escapes)]),
        }
    }

    /// How many attributes by name a state has, with the place of the first.
    pub(crate) fn attributes(&self, state: u32) -> (u32, u32) {
        let state = &self.schema.states[state as usize];
        (state.first, state.attributes)
    }

    /// There is room for one more open element.
    #[inline]
    fn room(&self) -> Result<(), Cause> {
        // The document's own frame is none.
        match self.stack.len() > self.depth_max {
            true => Err(Cause::limit("depth", self.depth_max as u64)),
            false => Ok(()),
        }
    }

    /// Enters an element by its declaration.
    ///
    /// Frames are made where they stay: one that is handed on is read in other pieces than it was
    /// written in, for which a processor waits.
    #[inline]
    pub(crate) fn enter_declared(&mut self, name: u32, element: u32) -> Result<(), Cause> {
        self.room()?;
        let (type_, nil) = match self.schema.elements.get(element as usize) {
            Some(element) => (&element.type_, element.nillable),
            None => (&self.schema.element_fragment, true),
        };
        self.stack.push(Frame {
            name,
            at: At::Schema(type_.start),
            empty: type_.empty,
            cast: type_.castable,
            nil,
            count: 0,
        });
        Ok(())
    }

    /// Enters an element by the global grammar of its name; a built-in one is made at need.
    pub(crate) fn enter_global(&mut self, name: u32) -> Result<(), Cause> {
        let known = self.schema.names.get(name as usize);
        if let Some(known) = known.filter(|known| known.element != NONE) {
            let element = known.element;
            return self.enter_declared(name, element);
        }
        self.room()?;
        if self.of_name.len() <= name as usize {
            self.of_name.resize(name as usize + 1, NONE);
        }
        if self.of_name[name as usize] == NONE {
            self.of_name[name as usize] = self.used as u32;
            match self.built_in.get_mut(self.used) {
                Some(grammar) => {
                    grammar.start_tag.clear();
                    grammar.content.clear();
                }
                None => self.built_in.push(BuiltIn::default()),
            }
            self.built_in[self.used].content.push(Learnt::End);
            self.used += 1;
        }
        self.stack.push(Frame {
            name,
            at: At::StartTag(self.of_name[name as usize]),
            empty: NONE,
            cast: false,
            nil: false,
            count: 0,
        });
        Ok(())
    }

    /// What a built-in grammar knows at its place.
    pub(crate) fn learnt(&self) -> &[Learnt] {
        match self.top().at {
            At::StartTag(grammar) => &self.built_in[grammar as usize].start_tag,
            At::Content(grammar) => &self.built_in[grammar as usize].content,
            _ => &[],
        }
    }

    /// A built-in grammar learns a production at its place, unless it has it and must not twice.
    pub(crate) fn learn(&mut self, production: Learnt) -> Result<(), Cause> {
        let (grammar, start_tag) = match self.top().at {
            At::StartTag(grammar) => (grammar, true),
            At::Content(grammar) => (grammar, false),
            _ => return Ok(()),
        };
        let at = grammar;
        let grammar = &mut self.built_in[at as usize];
        let list = if start_tag {
            &mut grammar.start_tag
        } else {
            &mut grammar.content
        };
        let once = match production {
            Learnt::Characters | Learnt::End | Learnt::Unused(_) => true,
            Learnt::Attribute(name) => is_xsi_type(&self.schema, name),
            Learnt::Element(_) => false,
        };
        if once && list.contains(&production) {
            return Ok(());
        }
        if self.learnt == self.learnt_max {
            return Err(Cause::limit("productions", self.learnt_max as u64));
        }
        let kept = match self.profile {
            Some(profile) => {
                within(profile.maximum_number_of_built_in_productions, self.kept)
                    && within(
                        profile.maximum_number_of_built_in_element_grammars,
                        at as usize,
                    )
            }
            None => true,
        };
        let unused = Learnt::Unused(match production {
            Learnt::Characters => Unused::Characters,
            Learnt::End => Unused::End,
            _ if once => Unused::Type,
            _ => Unused::Other,
        });
        if once && list.contains(&unused) {
            return Ok(());
        }
        self.learnt += 1;
        self.kept += usize::from(kept);
        list.push(if kept { production } else { unused });
        Ok(())
    }

    /// Whether the element at hand is in the start tag of a built-in grammar that must not learn.
    pub(crate) fn learns_no_more(&self) -> bool {
        let (Some(profile), At::StartTag(grammar)) = (self.profile, self.top().at) else {
            return false;
        };
        !within(profile.maximum_number_of_built_in_productions, self.kept)
            || !within(
                profile.maximum_number_of_built_in_element_grammars,
                grammar as usize,
            )
    }

    /// The built-in fragment grammar learns an element.
    pub(crate) fn learn_root(&mut self, name: u32) -> Result<(), Cause> {
        if self.learnt == self.learnt_max {
            return Err(Cause::limit("productions", self.learnt_max as u64));
        }
        self.learnt += 1;
        self.fragment.push(name);
        Ok(())
    }

    /// Content has begun: behind the start tag of a built-in grammar.
    pub(crate) fn content_begins(&mut self) {
        let frame = self.top_mut();
        if let At::StartTag(grammar) = frame.at {
            frame.at = At::Content(grammar);
        }
    }

    /// An undeclared child or text: from a start tag of the schema to *content2*.
    pub(crate) fn undeclared_content(&mut self) {
        if let At::Schema(state) = self.top().at {
            let content = self.schema.states[state as usize].content;
            self.top_mut().at = At::Schema(content);
        }
        self.content_begins();
    }

    /// xsi:type names a type: its grammar takes over, if there is one.
    pub(crate) fn cast(&mut self, type_name: u32) {
        let known = self.schema.names.get(type_name as usize);
        let Some(type_) = known.and_then(|known| self.schema.types.get(known.type_ as usize))
        else {
            return;
        };
        let &Type { start, empty, .. } = type_;
        let frame = self.top_mut();
        frame.at = At::Schema(start);
        frame.empty = empty;
        frame.cast = false;
        frame.nil = false;
    }

    /// xsi:nil is true.
    pub(crate) fn nil(&mut self) {
        let frame = self.top_mut();
        if frame.empty != NONE {
            frame.at = At::Schema(frame.empty);
            frame.cast = false;
            frame.nil = false;
        }
    }

    /// Goes on to what follows a production.
    #[inline]
    pub(crate) fn follow(&mut self, next: u32) {
        if next & COUNTED != 0 {
            return self.follow_counted(next & !COUNTED);
        }
        let frame = self.top_mut();
        frame.at = At::Schema(next);
        frame.count = 0;
    }

    #[cold]
    fn follow_counted(&mut self, repeat: u32) {
        let Repeat {
            again,
            times,
            after,
        } = self.schema.repeats[repeat as usize];
        let frame = self.top_mut();
        let count = frame.count.saturating_add(times.min(1));
        (frame.at, frame.count) = match times > 0 && count >= times {
            true => (At::Schema(after), 0),
            false => (At::Schema(again), count),
        };
    }

    /// The datatype of the global attribute declaration of a name.
    pub(crate) fn global_attribute(&self, name: u32) -> Option<u32> {
        let known = self.schema.names.get(name as usize)?;
        (known.attribute != NONE).then_some(known.attribute)
    }

    /// The open elements: `/Envelope/Body`.
    pub(crate) fn path(&self) -> alloc::string::String {
        let mut path = alloc::string::String::new();
        for frame in self
            .stack
            .iter()
            .filter(|frame| frame.name != NONE)
            .take(64)
        {
            path.push('/');
            path.push_str(self.names.local(&self.schema, frame.name));
        }
        path
    }
}

/// Whether so many leave room for one more.
fn within(limit: Option<u32>, count: usize) -> bool {
    limit.is_none_or(|limit| count < limit as usize)
}

/// Whether a name is xsi:type, which comes second in its namespace.
pub(crate) fn is_xsi_type(schema: &Schema, name: u32) -> bool {
    name == schema.xsi_type()
}

fn index(shape: Shape) -> usize {
    usize::from(shape.entry) + 2 * usize::from(shape.start_tag) + 4 * usize::from(shape.end)
}

impl Kinds {
    fn new(options: &Options) -> Self {
        let preserve = options.preserve;
        let misc = match (preserve.comments, preserve.pis) {
            (false, false) => None,
            (true, false) => Some(Second::Comment),
            (false, true) => Some(Second::ProcessingInstruction),
            (true, true) => Some(Second::CommentOrInstruction),
        };
        let entity = preserve.dtd.then_some(Second::EntityReference);
        let namespace = preserve.prefixes.then_some(Second::Namespace);
        let contained = options.self_contained.then_some(Second::SelfContained);
        let children = [Second::ElementAny, Second::Characters];
        let children = children.into_iter().chain(entity).chain(misc);
        let schema = core::array::from_fn(|at| {
            let (entry, start_tag, end) = (at & 1 != 0, at & 2 != 0, at & 4 != 0);
            let mut seconds = Seconds::default();
            seconds.extend((!end).then_some(Second::End));
            if entry {
                seconds.extend([Second::XsiType, Second::XsiNil]);
            }
            if start_tag {
                seconds.extend([Second::AttributeAny, Second::AttributeUntyped]);
            }
            if entry {
                seconds.extend(namespace);
                seconds.extend(contained);
            }
            seconds.extend(children.clone());
            seconds
        });
        let strict = core::array::from_fn(|at| {
            let cast = (at & 1 != 0).then_some(Second::XsiType);
            let nil = (at & 2 != 0).then_some(Second::XsiNil);
            cast.into_iter().chain(nil).collect()
        });
        let mut start_tag = Seconds::from_iter([Second::End, Second::AttributeAny]);
        start_tag.extend(namespace);
        start_tag.extend(contained);
        start_tag.extend(children.clone());
        let doctype = preserve.dtd.then_some(Second::DocType);
        let comment = preserve.comments.then_some(Second::Comment);
        let instruction = preserve.pis.then_some(Second::ProcessingInstruction);
        Self {
            schema,
            strict,
            start_tag,
            content: children.collect(),
            document: doctype.into_iter().chain(misc).collect(),
            document_end: comment.into_iter().chain(instruction).collect(),
        }
    }
}
