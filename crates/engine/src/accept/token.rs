//! The tokens of what wakes an idle worker, in its poller.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The shared queue has a connection.
    Queue,
    /// A connection of this worker's own has an event.
    Connections,
    /// The worker was [told](crate::control::Control::notify) something.
    Notice,
    /// The master's pipe.
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
