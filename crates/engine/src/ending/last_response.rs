//! The response to an overdue request.

use fastrack_http::{error_response, DateCache, Error};
use fastrack_sys::{epoch_seconds, reset_now, send, shutdown_write};

use crate::claim::{ActiveRequest, Claim};

/// Answers the client of a seized request with 504. The connection is reset if a part of a response has left, and closed in order
/// if all of it has. The descriptor stays open until the process ends.
pub(crate) fn answer_overdue(request: &ActiveRequest, claim: Claim) {
    match claim {
        Claim::Open => {
            let mut response = Vec::new();
            let with_body = !request.is_head_request();
            error_response(
                Error::Overdue,
                DateCache::default().at(epoch_seconds()),
                with_body,
                &mut response,
            );
            // The response fits into any socket's send buffer. A client whose buffer is full gets nothing.
            request.with_client(|client| drop(send(client, &response)));
        }
        Claim::Begun => {
            // The reset would discard the lent bytes.
            request.flush_lent();
            return request.with_client(|client| drop(reset_now(client)));
        }
        Claim::None | Claim::Complete => {}
    }
    // The call fails for a client that is gone.
    request.with_client(|client| drop(shutdown_write(client)));
}
