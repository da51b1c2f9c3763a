//! Elements of XML as Pacemaker writes them: attributes, child elements and comments, without text between them.

/// An element, or a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Xml {
    /// The name of the element. A comment has the name [`COMMENT`].
    pub(super) tag: String,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) children: Vec<Xml>,
}

/// The name of comments; their text is an attribute of this name.
const COMMENT: &str = "#comment";

impl Xml {
    pub(super) fn new(tag: &str, attributes: &[(&str, &str)]) -> Self {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { tag: tag.to_owned(), attributes, children: Vec::new() }
    }

    /// Adds children.
    pub(super) fn with(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children);
        self
    }

    /// Reads the output of a program.
    ///
    /// # Errors
    /// The fault of the text.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let document = roxmltree::Document::parse(text).map_err(|error| format!("XML that can't be read: {error}"))?;
        Ok(Self::of(document.root_element()))
    }

    fn of(node: roxmltree::Node<'_, '_>) -> Self {
        let attributes = node.attributes().map(|one| (one.name().to_owned(), one.value().to_owned())).collect();
        let children = node.children().filter_map(|child| {
            let comment = || Self::new(COMMENT, &[(COMMENT, child.text().unwrap_or_default())]);
            if child.is_element() { Some(Self::of(child)) } else { child.is_comment().then(comment) }
        });
        Self { tag: node.tag_name().name().to_owned(), attributes, children: children.collect() }
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn id(&self) -> &str {
        self.attribute("id").unwrap_or_default()
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.attribute(name) == Some(value)
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        match self.attributes.iter_mut().find(|(own, _)| own == name) {
            Some((_, own)) => value.clone_into(own),
            None => self.attributes.push((name.to_owned(), value.to_owned())),
        }
    }

    /// The first child with this name.
    pub(super) fn child(&self, tag: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.tag == tag)
    }

    /// The first child with this name, which is made if it is missing.
    pub(super) fn child_mut(&mut self, tag: &str) -> &mut Self {
        let at = self.children.iter().position(|child| child.tag == tag).unwrap_or_else(|| {
            self.children.push(Self::new(tag, &[]));
            self.children.len() - 1
        });
        &mut self.children[at]
    }

    /// The elements below this element, with itself, from the outside to the inside.
    pub(super) fn all(&self) -> Vec<&Self> {
        let mut all = vec![self];
        let mut next = 0;
        while let Some(one) = all.get(next).copied() {
            all.extend(one.children.iter());
            next += 1;
        }
        all
    }

    pub(super) fn is_comment(&self) -> bool {
        self.tag == COMMENT
    }

    /// Its text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        if self.is_comment() {
            text.push_str(&format!("<!--{}-->", self.attribute(COMMENT).unwrap_or_default()));
            return;
        }
        text.push('<');
        text.push_str(&self.tag);
        for (name, value) in &self.attributes {
            text.push_str(&format!(" {name}=\"{}\"", escaped(value)));
        }
        if self.children.is_empty() {
            text.push_str("/>");
            return;
        }
        text.push('>');
        self.children.iter().for_each(|child| child.write(text));
        text.push_str(&format!("</{}>", self.tag));
    }
}

/// The text of an attribute's value.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\n' => text.push_str("&#10;"),
            '\t' => text.push_str("&#9;"),
            '\r' => text.push_str("&#13;"),
            plain => text.push(plain),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_survives_being_read_and_written() {
        let text = r#"<a b="1 &lt;&gt;&amp;&quot;'&#10;&#9;"><!-- of a person --><c/><d e=""><f/></d></a>"#;
        let read = Xml::read(text).expect("read");
        assert_eq!(read.attribute("b"), Some("1 <>&\"'\n\t"));
        assert_eq!(read.text(), text);
        assert_eq!(Xml::read(&read.text()).expect("read"), read);
        assert!(Xml::read("<a>").expect_err("cut").contains("can't be read"));
    }
}
