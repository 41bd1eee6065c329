//! Storage of connections, and the mapping of events to them: a reused slot gets a new generation, so
//! that stale events match no connection.

use crate::relay::connection::Connection;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

/// One of a connection's two sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The accepted socket.
    Near,
    /// The socket that was opened for the connection.
    Far,
}

/// The object that an event refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// A listener for connections that the body dials.
    Listener(u32),
    /// A listener of the compatibility proxy.
    Proxy(u32),
    Published(u32),
    Dns(u32),
    /// The socket that reports packets that no listener receives.
    Log,
    Connection(Key, Side),
    /// The link to the supervisor.
    Link,
}

const KIND_BITS: u32 = 3;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
const INDEX_MASK: u64 = (1 << (u32::BITS - KIND_BITS)) - 1;

impl Token {
    pub(super) fn number(self) -> u64 {
        let (kind, index, generation) = match self {
            Self::Listener(index) => (0, index, 0),
            Self::Proxy(index) => (1, index, 0),
            Self::Published(index) => (2, index, 0),
            Self::Dns(index) => (3, index, 0),
            Self::Log => (4, 0, 0),
            Self::Connection(key, Side::Near) => (5, key.index, key.generation),
            Self::Connection(key, Side::Far) => (6, key.index, key.generation),
            Self::Link => (7, 0, 0),
        };
        u64::from(generation) << u32::BITS | u64::from(index) << KIND_BITS | kind
    }

    pub(super) fn of(number: u64) -> Self {
        let index = u32::try_from(number >> KIND_BITS & INDEX_MASK).unwrap_or(u32::MAX);
        let key = Key {
            index,
            generation: u32::try_from(number >> u32::BITS).unwrap_or(u32::MAX),
        };
        match number & KIND_MASK {
            0 => Self::Listener(index),
            1 => Self::Proxy(index),
            2 => Self::Published(index),
            3 => Self::Dns(index),
            4 => Self::Log,
            5 => Self::Connection(key, Side::Near),
            6 => Self::Connection(key, Side::Far),
            _ => Self::Link,
        }
    }
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn insert(&mut self, connection: Connection) -> Key {
        let connection = Some(Box::new(connection));
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            slot.generation = slot.generation.wrapping_add(1);
            slot.connection = connection;
            return Key {
                index,
                generation: slot.generation,
            };
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot {
            generation: 0,
            connection,
        });
        Key {
            index,
            generation: 0,
        }
    }

    pub(super) fn get(&mut self, key: Key) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(key.index as usize)?;
        let is_same = slot.generation == key.generation;
        slot.connection.as_deref_mut().filter(|_| is_same)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Box<Connection>> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let removed = slot.connection.take();
        if removed.is_some() {
            self.free.push(key.index);
        }
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Connection)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            let key = Key {
                index,
                generation: slot.generation,
            };
            slot.connection
                .as_deref()
                .map(|connection| (key, connection))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_decoded_from_its_number() {
        for number in [0, 1, 511, (1 << 29) - 1] {
            let key = Key {
                index: number,
                generation: u32::MAX - number,
            };
            for token in [
                Token::Listener(number),
                Token::Proxy(number),
                Token::Published(number),
                Token::Dns(number),
                Token::Log,
                Token::Connection(key, Side::Near),
                Token::Connection(key, Side::Far),
                Token::Link,
            ] {
                assert_eq!(Token::of(token.number()), token);
            }
        }
    }
}
