//! The tokens of an idle worker's poller: one for each source of events.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The shared queue has a connection.
    Queue,
    /// A connection of this worker has an event.
    Connections,
    /// A flag of the worker was set: see [`Control::notify`](crate::control::Control::notify).
    Notice,
    /// The master's pipe was closed: the master has ended.
    Master,
    /// The listener with this index has a client.
    Listener(usize),
}

impl Token {
    pub fn number(self) -> u64 {
        match self {
            Token::Queue => 0,
            Token::Connections => 1,
            Token::Notice => 2,
            Token::Master => 3,
            Token::Listener(index) => 4 + index as u64,
        }
    }

    pub fn of(number: u64) -> Self {
        match number {
            0 => Token::Queue,
            1 => Token::Connections,
            2 => Token::Notice,
            3 => Token::Master,
            listener => Token::Listener((listener - 4) as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Token::{self, Connections, Listener, Master, Notice, Queue};

    #[test]
    fn each_token_has_a_number_of_its_own() {
        for token in [Queue, Connections, Notice, Master, Listener(0), Listener(1)] {
            assert_eq!(Token::of(token.number()), token);
        }
    }
}
