//! The grammars of a stream and its position in them (8).

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

/// Position of the document or of an element in its grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// DocContent, before the root element.
    DocContent,
    /// DocEnd, after the root element.
    DocEnd,
    /// FragmentContent.
    FragmentContent,
    /// After the end of the document.
    Ended,
    /// A state of the schema's grammars.
    Schema(u32),
    /// StartTagContent of a built-in grammar.
    StartTagContent(u32),
    /// ElementContent of a built-in grammar.
    ElementContent(u32),
}

/// An open element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) name: u32,
    pub(crate) position: Position,
    /// The start of *TypeEmpty*, which xsi:nil selects.
    pub(crate) type_empty: u32,
    /// The strict grammar allows xsi:type at the entry.
    pub(crate) allows_xsi_type: bool,
    /// The strict grammar allows xsi:nil at the entry.
    pub(crate) allows_xsi_nil: bool,
    /// Number of completed copies of a counted particle.
    pub(crate) copies: u32,
}

/// The first parts of the event codes of a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstPart {
    /// Index of the first production of the state, and their number.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// One more code escapes to the second part.
    pub(crate) has_second_part: bool,
    /// Bits of the first part.
    pub(crate) bits: u32,
}

/// A production that a built-in grammar has learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LearnedProduction {
    Element(u32),
    Attribute(u32),
    Characters,
    End,
    /// Counted by every decoder and never used (EXI Profile, 3.1).
    Unused(UnusedProduction),
}

/// Kinds of unused productions. All but `Other` are learned at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnusedProduction {
    Type,
    Characters,
    End,
    Other,
}

/// A built-in element grammar (8.4.3). The newest production has event code 0 and is last in the
/// list.
#[derive(Clone, Debug, Default)]
pub(crate) struct BuiltIn {
    pub(crate) start_tag: Vec<LearnedProduction>,
    pub(crate) content: Vec<LearnedProduction>,
}

/// The terminal that the second part of an event code selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecondPart {
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
    /// Comments and processing instructions; a third part distinguishes them.
    CommentOrInstruction,
}

impl SecondPart {
    const COUNT: usize = Self::CommentOrInstruction as usize + 1;
}

/// The second parts of a state in the order of their codes.
#[derive(Clone, Debug)]
pub(crate) struct SecondParts {
    list: [SecondPart; SecondPart::COUNT],
    /// The code of each second part, or [`SecondParts::MISSING`].
    codes: [u8; SecondPart::COUNT],
    count: u8,
    /// Bits of the second part.
    pub(crate) width: u32,
}

impl Default for SecondParts {
    fn default() -> Self {
        Self {
            list: [SecondPart::End; SecondPart::COUNT],
            codes: [Self::MISSING; SecondPart::COUNT],
            count: 0,
            width: 0,
        }
    }
}

impl SecondParts {
    const MISSING: u8 = u8::MAX;

    fn push(&mut self, second: SecondPart) {
        self.codes[second as usize] = self.count;
        self.list[usize::from(self.count)] = second;
        self.count += 1;
        self.width = width(u64::from(self.count));
    }

    /// Number of first parts that escape to the second part: one or none.
    pub(crate) fn escape_count(&self) -> usize {
        usize::from(self.count > 0)
    }

    /// The second part with this code.
    pub(crate) fn by_code(&self, code: u32) -> Option<SecondPart> {
        let list = &self.list[..usize::from(self.count)];
        list.get(code as usize).copied()
    }

    /// The code of this second part.
    pub(crate) fn code(&self, second: SecondPart) -> Option<u32> {
        let code = self.codes[second as usize];
        (code != Self::MISSING).then_some(u32::from(code))
    }
}

impl Extend<SecondPart> for SecondParts {
    fn extend<I: IntoIterator<Item = SecondPart>>(&mut self, seconds: I) {
        seconds.into_iter().for_each(|second| self.push(second));
    }
}

impl FromIterator<SecondPart> for SecondParts {
    fn from_iter<I: IntoIterator<Item = SecondPart>>(seconds: I) -> Self {
        let mut all = Self::default();
        all.extend(seconds);
        all
    }
}

/// Second parts shared by all states of a kind, under the options of a stream.
#[derive(Debug, Default)]
struct SharedSecondParts {
    /// For states of the schema, by entry, start tag and end.
    schema: [SecondParts; 8],
    /// For strict entries, by xsi:type and xsi:nil.
    strict: [SecondParts; 4],
    start_tag: SecondParts,
    content: SecondParts,
    document: SecondParts,
    document_end: SecondParts,
}

/// The grammars of a stream, its string tables of names, and the stack of open elements.
#[derive(Debug)]
pub(crate) struct Grammar {
    pub(crate) schema: Arc<Schema>,
    pub(crate) options: Options,
    pub(crate) names: Names,
    pub(crate) stack: Vec<Frame>,
    pub(crate) built_in: Vec<BuiltIn>,
    built_in_count: usize,
    /// The built-in grammar of each name.
    built_in_of_name: Vec<u32>,
    /// Root elements that the built-in fragment grammar has learned (8.4.2).
    pub(crate) fragment_roots: Vec<u32>,
    learned_count: usize,
    /// Number of learned productions that can be used again.
    usable_count: usize,
    /// Profile limits of an encoder.
    pub(crate) profile: Option<Profile>,
    productions_max: usize,
    depth_max: usize,
    shared_second_parts: SharedSecondParts,
    /// `shared_second_parts` and `replaced_representations` match the options.
    is_configured: bool,
    /// Representations that replace the schema's.
    replaced_representations: Option<Box<[Representation]>>,
}

impl Representations for Grammar {
    fn representation(&self, datatype: u32) -> &Representation {
        match &self.replaced_representations {
            Some(changed) => &changed[datatype as usize],
            None => self.schema.representation(datatype),
        }
    }
}

/// The learned state of a body, saved while a self-contained element has tables of its own.
#[derive(Debug)]
pub(crate) struct SuspendedGrammar {
    names: Names,
    stack: Vec<Frame>,
    built_in: Vec<BuiltIn>,
    built_in_count: usize,
    built_in_of_name: Vec<u32>,
    fragment_roots: Vec<u32>,
}

impl Grammar {
    /// Saves the learned state and starts a fragment with initial tables.
    pub(crate) fn suspend(&mut self, table_bytes: usize) -> SuspendedGrammar {
        let state = SuspendedGrammar {
            names: core::mem::take(&mut self.names),
            stack: core::mem::take(&mut self.stack),
            built_in: core::mem::take(&mut self.built_in),
            built_in_count: self.built_in_count,
            built_in_of_name: core::mem::take(&mut self.built_in_of_name),
            fragment_roots: core::mem::take(&mut self.fragment_roots),
        };
        let (learned_count, usable_count) = (self.learned_count, self.usable_count);
        self.restart(table_bytes);
        (self.learned_count, self.usable_count) = (learned_count, usable_count);
        self.top_mut().position = Position::FragmentContent;
        state
    }

    /// Restores the saved state.
    pub(crate) fn resume(&mut self, state: SuspendedGrammar) {
        self.names = state.names;
        self.stack = state.stack;
        self.built_in = state.built_in;
        self.built_in_count = state.built_in_count;
        self.built_in_of_name = state.built_in_of_name;
        self.fragment_roots = state.fragment_roots;
    }

    pub(crate) fn new(schema: Arc<Schema>) -> Self {
        Self {
            schema,
            options: Options::default(),
            names: Names::default(),
            stack: Vec::new(),
            built_in: Vec::new(),
            built_in_count: 0,
            built_in_of_name: Vec::new(),
            fragment_roots: Vec::new(),
            learned_count: 0,
            usable_count: 0,
            profile: None,
            productions_max: 0,
            depth_max: 0,
            shared_second_parts: SharedSecondParts::default(),
            is_configured: false,
            replaced_representations: None,
        }
    }

    /// Resets the grammars to their state at the start of a stream.
    pub(crate) fn begin(&mut self, options: &Options, limits: &Limits) -> Result<(), Cause> {
        options.check()?;
        if self.options != *options || !self.is_configured {
            self.is_configured = false;
            self.options.clone_from(options);
            self.shared_second_parts = SharedSecondParts::new(options);
            self.replaced_representations = crate::representation::replaced(&self.schema, options)?;
            self.is_configured = true;
        }
        self.productions_max = limits.productions;
        self.depth_max = limits.depth;
        self.restart(limits.table_bytes);
        Ok(())
    }

    /// Resets tables and grammars to their state at the start of a body.
    pub(crate) fn restart(&mut self, table_bytes: usize) {
        self.names.reset(&self.schema, table_bytes);
        self.built_in_count = 0;
        self.built_in_of_name.clear();
        self.fragment_roots.clear();
        self.learned_count = 0;
        self.usable_count = 0;
        self.stack.clear();
        let position = if self.options.fragment {
            Position::FragmentContent
        } else {
            Position::DocContent
        };
        self.stack.push(Frame {
            name: NONE,
            position,
            type_empty: NONE,
            allows_xsi_type: false,
            allows_xsi_nil: false,
            copies: 0,
        });
    }

    #[inline]
    pub(crate) fn top(&self) -> &Frame {
        // The frame of the document stays until the stream ends.
        &self.stack[self.stack.len() - 1]
    }

    #[inline]
    pub(crate) fn top_mut(&mut self) -> &mut Frame {
        let last = self.stack.len() - 1;
        &mut self.stack[last]
    }

    /// The second parts at the current position.
    pub(crate) fn second_parts(&self) -> &SecondParts {
        let frame = self.top();
        match frame.position {
            Position::DocContent => &self.shared_second_parts.document,
            Position::DocEnd | Position::FragmentContent | Position::Ended => {
                &self.shared_second_parts.document_end
            }
            Position::StartTagContent(_) => &self.shared_second_parts.start_tag,
            Position::ElementContent(_) => &self.shared_second_parts.content,
            Position::Schema(state) => {
                let shape = self.schema.states[state as usize].shape;
                if !self.options.strict {
                    return &self.shared_second_parts.schema[shape_index(shape)];
                }
                let entry = usize::from(shape.entry);
                let (cast, nil) = (
                    usize::from(frame.allows_xsi_type),
                    usize::from(frame.allows_xsi_nil),
                );
                &self.shared_second_parts.strict[entry * (cast + 2 * nil)]
            }
        }
    }

    /// The first parts of event codes in a state of the schema.
    #[inline]
    pub(crate) fn first_part(&self, state: u32) -> FirstPart {
        let state = &self.schema.states[state as usize];
        let frame = self.top();
        // In a strict grammar only xsi:type and xsi:nil have second parts.
        let has_second_part = !self.options.strict
            | (state.shape.entry & (frame.allows_xsi_type | frame.allows_xsi_nil));
        FirstPart {
            first: state.first,
            count: state.count,
            has_second_part,
            bits: u32::from(state.widths[usize::from(has_second_part)]),
        }
    }

    /// Index of the first named attribute production of a state, and their number.
    pub(crate) fn attributes(&self, state: u32) -> (u32, u32) {
        let state = &self.schema.states[state as usize];
        (state.first, state.attributes)
    }

    /// Checks the limit of open elements before one more is opened.
    #[inline]
    fn check_depth(&self) -> Result<(), Cause> {
        // The frame of the document does not count.
        match self.stack.len() > self.depth_max {
            true => Err(Cause::limit("depth", self.depth_max as u64)),
            false => Ok(()),
        }
    }

    /// Enters an element by its declaration.
    ///
    /// The frame is built in place: a copy would be loaded in other widths than it was stored in,
    /// which defeats store forwarding and stalls the processor.
    #[inline]
    pub(crate) fn enter_declared_element(&mut self, name: u32, element: u32) -> Result<(), Cause> {
        self.check_depth()?;
        let (type_, nil) = match self.schema.elements.get(element as usize) {
            Some(element) => (&element.type_, element.nillable),
            None => (&self.schema.element_fragment, true),
        };
        self.stack.push(Frame {
            name,
            position: Position::Schema(type_.start),
            type_empty: type_.empty,
            allows_xsi_type: type_.castable,
            allows_xsi_nil: nil,
            copies: 0,
        });
        Ok(())
    }

    /// Enters an element with the global grammar of its name; a built-in grammar is created on
    /// first use.
    pub(crate) fn enter_global_element(&mut self, name: u32) -> Result<(), Cause> {
        let known = self.schema.names.get(name as usize);
        if let Some(known) = known.filter(|known| known.element != NONE) {
            let element = known.element;
            return self.enter_declared_element(name, element);
        }
        self.check_depth()?;
        if self.built_in_of_name.len() <= name as usize {
            self.built_in_of_name.resize(name as usize + 1, NONE);
        }
        if self.built_in_of_name[name as usize] == NONE {
            self.built_in_of_name[name as usize] = self.built_in_count as u32;
            match self.built_in.get_mut(self.built_in_count) {
                Some(grammar) => {
                    grammar.start_tag.clear();
                    grammar.content.clear();
                }
                None => self.built_in.push(BuiltIn::default()),
            }
            self.built_in[self.built_in_count]
                .content
                .push(LearnedProduction::End);
            self.built_in_count += 1;
        }
        self.stack.push(Frame {
            name,
            position: Position::StartTagContent(self.built_in_of_name[name as usize]),
            type_empty: NONE,
            allows_xsi_type: false,
            allows_xsi_nil: false,
            copies: 0,
        });
        Ok(())
    }

    /// Productions that the current built-in grammar has learned.
    pub(crate) fn learned_productions(&self) -> &[LearnedProduction] {
        match self.top().position {
            Position::StartTagContent(grammar) => &self.built_in[grammar as usize].start_tag,
            Position::ElementContent(grammar) => &self.built_in[grammar as usize].content,
            _ => &[],
        }
    }

    /// Adds a production to the current built-in grammar, unless it is one that is learned only
    /// once and is known.
    pub(crate) fn learn_production(&mut self, production: LearnedProduction) -> Result<(), Cause> {
        let (grammar, start_tag) = match self.top().position {
            Position::StartTagContent(grammar) => (grammar, true),
            Position::ElementContent(grammar) => (grammar, false),
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
            LearnedProduction::Characters
            | LearnedProduction::End
            | LearnedProduction::Unused(_) => true,
            LearnedProduction::Attribute(name) => is_xsi_type(&self.schema, name),
            LearnedProduction::Element(_) => false,
        };
        if once && list.contains(&production) {
            return Ok(());
        }
        if self.learned_count == self.productions_max {
            return Err(Cause::limit("productions", self.productions_max as u64));
        }
        let usable = match self.profile {
            Some(profile) => {
                is_below(
                    profile.maximum_number_of_built_in_productions,
                    self.usable_count,
                ) && is_below(
                    profile.maximum_number_of_built_in_element_grammars,
                    at as usize,
                )
            }
            None => true,
        };
        let unused = LearnedProduction::Unused(match production {
            LearnedProduction::Characters => UnusedProduction::Characters,
            LearnedProduction::End => UnusedProduction::End,
            _ if once => UnusedProduction::Type,
            _ => UnusedProduction::Other,
        });
        if once && list.contains(&unused) {
            return Ok(());
        }
        self.learned_count += 1;
        self.usable_count += usize::from(usable);
        list.push(if usable { production } else { unused });
        Ok(())
    }

    /// Returns true in the start tag of a built-in grammar that may learn no more.
    pub(crate) fn is_learning_exhausted(&self) -> bool {
        let (Some(profile), Position::StartTagContent(grammar)) =
            (self.profile, self.top().position)
        else {
            return false;
        };
        !is_below(
            profile.maximum_number_of_built_in_productions,
            self.usable_count,
        ) || !is_below(
            profile.maximum_number_of_built_in_element_grammars,
            grammar as usize,
        )
    }

    /// Adds a root element to the built-in fragment grammar.
    pub(crate) fn learn_root_element(&mut self, name: u32) -> Result<(), Cause> {
        if self.learned_count == self.productions_max {
            return Err(Cause::limit("productions", self.productions_max as u64));
        }
        self.learned_count += 1;
        self.fragment_roots.push(name);
        Ok(())
    }

    /// Moves a built-in grammar from the start tag to the content.
    pub(crate) fn enter_content(&mut self) {
        let frame = self.top_mut();
        if let Position::StartTagContent(grammar) = frame.position {
            frame.position = Position::ElementContent(grammar);
        }
    }

    /// Moves to the position after an undeclared child or text: from a start tag of the schema to
    /// *content2*.
    pub(crate) fn enter_undeclared_content(&mut self) {
        if let Position::Schema(state) = self.top().position {
            let content = self.schema.states[state as usize].content;
            self.top_mut().position = Position::Schema(content);
        }
        self.enter_content();
    }

    /// Switches to the grammar of the type that xsi:type names, if the schema has it.
    pub(crate) fn apply_xsi_type(&mut self, type_name: u32) {
        let known = self.schema.names.get(type_name as usize);
        let Some(type_) = known.and_then(|known| self.schema.types.get(known.type_ as usize))
        else {
            return;
        };
        let &Type { start, empty, .. } = type_;
        let frame = self.top_mut();
        frame.position = Position::Schema(start);
        frame.type_empty = empty;
        frame.allows_xsi_type = false;
        frame.allows_xsi_nil = false;
    }

    /// Switches to *TypeEmpty* after a true xsi:nil.
    pub(crate) fn apply_xsi_nil(&mut self) {
        let frame = self.top_mut();
        if frame.type_empty != NONE {
            frame.position = Position::Schema(frame.type_empty);
            frame.allows_xsi_type = false;
            frame.allows_xsi_nil = false;
        }
    }

    /// Moves to the state that follows a production.
    #[inline]
    pub(crate) fn move_to(&mut self, next: u32) {
        if next & COUNTED != 0 {
            return self.move_to_counted(next & !COUNTED);
        }
        let frame = self.top_mut();
        frame.position = Position::Schema(next);
        frame.copies = 0;
    }

    #[cold]
    fn move_to_counted(&mut self, repeat: u32) {
        let Repeat {
            next_copy,
            copies,
            after_last,
        } = self.schema.repeats[repeat as usize];
        let frame = self.top_mut();
        let count = frame.copies.saturating_add(copies.min(1));
        (frame.position, frame.copies) = match copies > 0 && count >= copies {
            true => (Position::Schema(after_last), 0),
            false => (Position::Schema(next_copy), count),
        };
    }

    /// The datatype of the global attribute declaration with this name.
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

/// Returns true if `count` is below the limit.
fn is_below(limit: Option<u32>, count: usize) -> bool {
    limit.is_none_or(|limit| count < limit as usize)
}

/// Returns true if a name is xsi:type.
pub(crate) fn is_xsi_type(schema: &Schema, name: u32) -> bool {
    name == schema.xsi_type()
}

fn shape_index(shape: Shape) -> usize {
    usize::from(shape.entry) + 2 * usize::from(shape.start_tag) + 4 * usize::from(shape.end)
}

impl SharedSecondParts {
    fn new(options: &Options) -> Self {
        let preserve = options.preserve;
        let misc = match (preserve.comments, preserve.pis) {
            (false, false) => None,
            (true, false) => Some(SecondPart::Comment),
            (false, true) => Some(SecondPart::ProcessingInstruction),
            (true, true) => Some(SecondPart::CommentOrInstruction),
        };
        let entity = preserve.dtd.then_some(SecondPart::EntityReference);
        let namespace = preserve.prefixes.then_some(SecondPart::Namespace);
        let contained = options.self_contained.then_some(SecondPart::SelfContained);
        let children = [SecondPart::ElementAny, SecondPart::Characters];
        let children = children.into_iter().chain(entity).chain(misc);
        let schema = core::array::from_fn(|at| {
            let (entry, start_tag, end) = (at & 1 != 0, at & 2 != 0, at & 4 != 0);
            let mut seconds = SecondParts::default();
            seconds.extend((!end).then_some(SecondPart::End));
            if entry {
                seconds.extend([SecondPart::XsiType, SecondPart::XsiNil]);
            }
            if start_tag {
                seconds.extend([SecondPart::AttributeAny, SecondPart::AttributeUntyped]);
            }
            if entry {
                seconds.extend(namespace);
                seconds.extend(contained);
            }
            seconds.extend(children.clone());
            seconds
        });
        let strict = core::array::from_fn(|at| {
            let cast = (at & 1 != 0).then_some(SecondPart::XsiType);
            let nil = (at & 2 != 0).then_some(SecondPart::XsiNil);
            cast.into_iter().chain(nil).collect()
        });
        let mut start_tag = SecondParts::from_iter([SecondPart::End, SecondPart::AttributeAny]);
        start_tag.extend(namespace);
        start_tag.extend(contained);
        start_tag.extend(children.clone());
        let doctype = preserve.dtd.then_some(SecondPart::DocType);
        let comment = preserve.comments.then_some(SecondPart::Comment);
        let instruction = preserve.pis.then_some(SecondPart::ProcessingInstruction);
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
