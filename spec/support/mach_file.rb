# frozen_string_literal: true

# A file for macOS as a linker would write it, with nothing in it but what says where it can be loaded.
class MachFile
  PAGE = 4096

  def initialize(cpu: 0x0100_000c, name: "fastrack.bundle", libraries: ["/usr/lib/libSystem.B.dylib"], macos: [11, 0], defined: "_Init_fastrack", linked: ["_kqueue"],
                 looked_up: ["_rb_funcallv"], signed: true)
    @cpu = cpu
    @name = name
    @libraries = libraries
    @macos = macos
    # Names with their types and descriptions, of which the upper half says in which library they are.
    @symbols = [[defined, 0x0f, 0], *linked.map { |one| [one, 0x01, 0x100] }, *looked_up.map { |one| [one, 0x01, -0x200] }]
    @signed = signed
  end

  # The header and the commands have a page, the symbols another one, the signature comes last. Names are in two levels (MH_TWOLEVEL).
  def bytes = unsigned + (@signed ? "\0" * PAGE : "")

  private

  def unsigned
    strings = "\0#{@symbols.map { |name, _, _| "#{name}\0" }.join}"
    place = 1
    table = @symbols.map do |name, type, description|
      [place, type, 1, description, 0].pack("L<CCs<Q<").tap { place += name.bytesize + 1 }
    end.join
    end_of_table = PAGE + table.bytesize
    commands = [dylib(0xd, @name), *@libraries.map { |one| dylib(0xc, one) }, [0x32, 24, 1, @macos[0] << 16 | @macos[1] << 8, 0, 0].pack("L<6"),
                [0x2, 24, PAGE, @symbols.size, end_of_table, strings.bytesize].pack("L<6"), *([0x1d, 16, 2 * PAGE, PAGE].pack("L<4") if @signed)]
    head = [0xfeedfacf, @cpu, 0, 6, commands.size, commands.sum(&:bytesize), 0x80, 0].pack("L<8") + commands.join
    head.ljust(PAGE, "\0") + (table + strings).ljust(PAGE, "\0")
  end

  def dylib(kind, name)
    name = name.ljust((name.bytesize / 8 + 1) * 8, "\0")
    [kind, 24 + name.bytesize, 24, 0, 0, 0].pack("L<6") + name
  end
end
