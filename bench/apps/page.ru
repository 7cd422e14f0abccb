# frozen_string_literal: true

# A page of 50 posts on Rails, with Active Record and Action View; /wait is the same page after a query that waits for 20 ms.
require_relative "page/config/application"

Page.initialize!

run Page
