# frozen_string_literal: true

# Lines that no process of the server's writes: random bytes, and each kind of messages with each number of words. STOP and RESTART, which end a
# server, come with words that they may not have.
class FakeBabble
  KINDS = Fastrack::MessageKinds.constants.map { |name| Fastrack::MessageKinds.const_get(name) }.freeze
  WORDS = ["", "0", "1", "7", "-1", "4.5", "1e400", "9" * 30, "x", "later", "later again", "none", "\xff", "\e[2K", "1" * 5000].freeze

  # Lines that a process writes at once.
  MOST = 12

  def initialize(random, count)
    @random = random
    @left = count
  end

  def left? = @left.positive?

  # @return [String]
  def line
    return @random.bytes(@random.rand(40)).tr("\n", "x").b if @random.rand(4).zero?

    [KINDS.sample(random: @random), *Array.new(@random.rand(5)) { WORDS.sample(random: @random).b }].join(" ")
  end

  # @param peers [Array<FakePeer>]
  def say(peers)
    return unless left? && @random.rand(3).zero?

    socket = peers.sample(random: @random)&.channel&.to_io
    return if socket.nil? || socket.closed?

    count = [1 + @random.rand(MOST), @left].min
    @left -= count
    lines = Array.new(count) { line }.reject { |one| one == Fastrack::MessageKinds::RESTART }
    socket.write_nonblock(lines.map { |one| "#{one}\n" }.join)
  rescue IO::WaitWritable, SystemCallError
    # The master has closed the channel.
    nil
  end
end
