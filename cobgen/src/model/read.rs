//! Reads typed sections from positioned values, with positions where the types require these.
//!
//! A [`serde`] deserializer over [`Node`]. A field of type [`Marked`] gets its value's position, and [`Named`] keeps
//! the positions of its keys. Values that [`structure`](super::structure) found wrong are marked [`Value::Invalid`] and
//! read as absent, so that a fault does not hide the next.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::node::{Key, Map, Mark, Node, Value, Written};
use super::yaml;

/// The struct name by which [`Marked`] requests a position.
const MARKED: &str = "$cobgen::Marked";
/// The newtype name by which a [`Value`] requests the spelling of numbers.
const VALUE: &str = "$cobgen::Value";
const MARKED_FIELDS: [&str; 4] = ["file", "line", "column", "value"];

/// A value with its position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marked<T> {
    /// The position.
    pub mark: Mark,
    /// The value.
    pub value: T,
}

/// A mapping from names to values, in written order.
#[derive(Debug, Clone, PartialEq)]
pub struct Named<T>(pub Vec<(Marked<String>, T)>);

/// An optional value. A wrong value is already reported and does not count as absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Maybe<T> {
    /// The value is absent.
    #[default]
    Absent,
    /// It is wrong.
    Wrong,
    /// A valid value.
    There(T),
}

impl<T> Maybe<T> {
    /// The value, if it is valid.
    pub fn as_ref(&self) -> Option<&T> {
        if let Self::There(value) = self { Some(value) } else { None }
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Named<T> {
    /// Names and values in written order.
    pub fn iter(&self) -> impl Iterator<Item = (&Marked<String>, &T)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().map(|(name, _)| name.value.as_str())
    }
}

/// The reason why values don't fit a type; after the structural check only possible through a bug.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(String);

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl Node {
    /// Reads a typed value from this node.
    ///
    /// # Errors
    /// [`ReadError`] when the value does not have the type's structure.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, ReadError> {
        T::deserialize(self)
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.value {
            Value::Null | Value::Invalid => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Int(i, _) => match (i64::try_from(*i), u64::try_from(*i)) {
                (Ok(i), _) => visitor.visit_i64(i),
                (Err(_), Ok(i)) => visitor.visit_u64(i),
                (Err(_), Err(_)) => visitor.visit_i128(*i),
            },
            Value::Float(f, _) => visitor.visit_f64(*f),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Map(map) => visitor.visit_map(Entries { entries: map.entries.iter(), value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.value {
            Value::Null | Value::Invalid => visitor.visit_none(),
            Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
                visitor.visit_some(self)
            }
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        if name == MARKED {
            visitor.visit_seq(Parts { mark: self.mark, next: 0, value: self })
        } else {
            self.deserialize_map(visitor)
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if matches!(self.value, Value::Null | Value::Invalid) {
            return visitor.visit_map(Entries { entries: [].iter(), value: None });
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if matches!(self.value, Value::Null | Value::Invalid) {
            return visitor.visit_seq(Items([].iter()));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.text() {
            Some(text) => visitor.visit_enum(text.into_deserializer()),
            None => Err(de::Error::custom("expected an allowed word")),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.value.written() {
            Some(written) if name == VALUE => visitor.visit_borrowed_bytes(written.as_bytes()),
            None if name == VALUE && self.value == Value::Invalid => visitor.visit_none(),
            Some(_) | None => visitor.visit_newtype_struct(self),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// A list's items, without invalid items.
struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        self.0.by_ref().find(|n| n.value != Value::Invalid).map(|node| seed.deserialize(node)).transpose()
    }
}

struct Entries<'de> {
    entries: std::slice::Iter<'de, (Key, Node)>,
    value: Option<&'de Node>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(KeyReader(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        let value = self.value.take().ok_or_else(|| de::Error::custom("a value was asked for before its key"))?;
        seed.deserialize(value)
    }
}

/// A key: a text with a position.
#[derive(Clone, Copy)]
struct KeyReader<'de>(&'de Key);

impl<'de> Deserializer<'de> for KeyReader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_borrowed_str(&self.0.text)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        if name == MARKED {
            visitor.visit_seq(Parts { mark: self.0.mark, next: 0, value: self })
        } else {
            self.deserialize_any(visitor)
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit option
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The fields of a [`Marked`], in order.
struct Parts<D> {
    mark: Mark,
    next: usize,
    value: D,
}

impl<'de, D: Deserializer<'de, Error = ReadError> + Copy> SeqAccess<'de> for Parts<D> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        self.next += 1;
        match self.next {
            1 => seed.deserialize(self.mark.file.into_deserializer()).map(Some),
            2 => seed.deserialize(self.mark.line.into_deserializer()).map(Some),
            3 => seed.deserialize(self.mark.column.into_deserializer()).map(Some),
            4 => seed.deserialize(self.value).map(Some),
            _ => Ok(None),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Marked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
            type Value = Marked<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a model")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Marked<T>, A::Error> {
                let short = || de::Error::custom("a position is incomplete");
                let file = parts.next_element()?.ok_or_else(short)?;
                let line = parts.next_element()?.ok_or_else(short)?;
                let column = parts.next_element()?.ok_or_else(short)?;
                let value = parts.next_element()?.ok_or_else(short)?;
                Ok(Marked { mark: Mark { file, line, column }, value })
            }
        }
        deserializer.deserialize_struct(MARKED, &MARKED_FIELDS, Parts(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<T> {
            type Value = Named<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Named(entries))
            }
        }
        deserializer.deserialize_map(Names(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Marked { mark, value } = Marked::<Value>::deserialize(deserializer)?;
        Ok(Self { mark, value })
    }
}

impl<'de, T: for<'a> Deserialize<'a>> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        match node.value {
            Value::Null => Ok(Self::Absent),
            Value::Invalid => Ok(Self::Wrong),
            Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
                node.read().map(Self::There).map_err(de::Error::custom)
            }
        }
    }
}

impl<T: JsonSchema> JsonSchema for Maybe<T> {
    fn inline_schema() -> bool {
        Option::<T>::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        Option::<T>::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            /// Invalid values stay invalid.
            fn visit_none<E>(self) -> Result<Value, E> {
                Ok(Value::Invalid)
            }
            fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
                Ok(Value::Bool(b))
            }
            fn visit_i64<E>(self, i: i64) -> Result<Value, E> {
                Ok(Value::Int(i.into(), Written::default()))
            }
            fn visit_u64<E>(self, i: u64) -> Result<Value, E> {
                Ok(Value::Int(i.into(), Written::default()))
            }
            fn visit_f64<E>(self, f: f64) -> Result<Value, E> {
                Ok(Value::Float(f, Written::default()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value::Text(text.to_owned()))
            }
            /// A number in its written spelling.
            fn visit_bytes<E: de::Error>(self, written: &[u8]) -> Result<Value, E> {
                let number = std::str::from_utf8(written).ok().and_then(yaml::number).flatten();
                number.ok_or_else(|| E::custom("a number in no known form"))
            }
            fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Value, D::Error> {
                value.deserialize_any(self)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Value::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((key, node)) = map.next_entry::<Marked<String>, Node>()? {
                    entries.push((Key { mark: key.mark, text: key.value }, node));
                }
                Ok(Value::Map(Map { entries }))
            }
        }
        deserializer.deserialize_newtype_struct(VALUE, Any)
    }
}

impl<T: JsonSchema> JsonSchema for Marked<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Named{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let values = generator.subschema_for::<T>();
        schemars::json_schema!({"type": "object", "additionalProperties": values})
    }
}

impl JsonSchema for Node {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Anything".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        true.into()
    }
}
