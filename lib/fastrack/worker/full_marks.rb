# frozen_string_literal: true

module Fastrack
  # What AutoGC knows of full marks: collections that look at all objects, and last for as long as many others.
  module FullMarks
    # Keeps Ruby from making a due full mark in a request, where it can be told to (Ruby 3.4): its collections are young ones
    # meanwhile, and the heap grows if need be.
    class Hold
      POSSIBLE = GC.respond_to?(:config) && GC.config.key?(:rgengc_allow_full_mark)

      # Collections that Ruby makes meanwhile at most. Then it is left alone.
      LONGEST = 3

      def initialize
        @holds = false
        @until = nil
      end

      # A full mark is due.
      #
      # @param count [Integer] collections until now
      def begin(count)
        return unless POSSIBLE

        @until ? give_up(count) : start(count)
      end

      # It was made.
      def end
        let if @holds
        @until = nil
      end

      private

      def start(count)
        @until = count + LONGEST
        # The app may want none.
        @holds = GC.config[:rgengc_allow_full_mark]
        GC.config(rgengc_allow_full_mark: false) if @holds
      end

      def give_up(count)
        let if @holds && count >= @until
      end

      def let
        @holds = false
        GC.config(rgengc_allow_full_mark: true)
      end
    end

    # When a full mark will be due, where Ruby cannot be kept from it: it says so a few requests before, which may be too late for
    # a good moment. It takes about as many collections as the one before took.
    class Foresight
      # Of that number. Each full mark that is made early costs as much as others do.
      SOON = 0.85
      LATER = 1.05

      # Collections from one to the next.
      OFTEN = 20

      def initialize
        @marks = GC.stat(:major_gc_count)
        @last = GC.count
        @interval = 0
      end

      # Ruby has collected.
      #
      # @param count [Integer] collections until now
      def learn(count)
        marks = GC.stat(:major_gc_count)
        return if marks == @marks

        @interval = count - @last
        @marks = marks
        @last = count
      end

      # A full mark was made between requests.
      def marked(count)
        @interval *= LATER
        @marks = GC.stat(:major_gc_count)
        @last = count
      end

      # Not while they come often: then Ruby is letting the heap grow.
      def soon?(count)
        !Hold::POSSIBLE && @interval >= OFTEN && count - @last >= @interval * SOON
      end
    end
  end
end
