//! XML for people: one element a line.

use chappe_xml::{Element, Node, Str};

/// The text of an element. Only white space between elements is added, where no text stands.
pub(super) fn pretty(element: &Element) -> String {
    let mut indented = element.clone();
    indent(&mut indented, 1);
    let mut text = indented.to_text();
    text.push('\n');
    text
}

fn indent(element: &mut Element, depth: usize) {
    let is_text = |node: &Node| matches!(node, Node::Text(text) if !text.trim().is_empty());
    if element.children.iter().any(is_text) {
        return;
    }
    let children = std::mem::take(&mut element.children);
    let line = |depth| Node::Text(Str::Owned(format!("\n{}", "  ".repeat(depth))));
    let mut is_parent = false;
    for child in children {
        if let Node::Element(mut child) = child {
            indent(&mut child, depth + 1);
            element.children.push(line(depth));
            element.children.push(Node::Element(child));
            is_parent = true;
        }
    }
    if is_parent {
        element.children.push(line(depth - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_space_between_elements_is_added() {
        let element = Element::parse(b"<a><b>x <c/></b><d><e> y</e></d></a>").unwrap();
        let text = pretty(&element);
        assert_eq!(
            text,
            "<a>\n  <b>x <c/></b>\n  <d>\n    <e> y</e>\n  </d>\n</a>\n"
        );
    }
}
