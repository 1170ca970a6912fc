<?php

/**
 * Says what programs may use of this package: public classes, and what they have that is public, a line each.
 *
 * What is marked with `@internal` is not public.
 */

declare(strict_types=1);

require __DIR__ . '/../bootstrap.php';
require __DIR__ . '/../stubs/symfony7.php';

$source = dirname(__DIR__, 2) . '/src';
$names = [];
foreach (new RecursiveIteratorIterator(new RecursiveDirectoryIterator($source)) as $file) {
    $name = substr((string) $file, strlen($source) + 1, -4);
    if (str_ends_with((string) $file, '.php')) {
        $names[] = 'Sluicegate\\' . strtr($name, '/', '\\');
    }
}
sort($names);
foreach ($names as $name) {
    $class = new ReflectionClass($name);
    echo isInternal($class) ? '' : implode("\n", described($class)) . "\n";
}

/** @param ReflectionClass<object>|ReflectionMethod|ReflectionProperty|ReflectionClassConstant $of */
function isInternal(ReflectionClass|ReflectionMethod|ReflectionProperty|ReflectionClassConstant $of): bool
{
    return str_contains((string) $of->getDocComment(), '@internal');
}

/**
 * @param ReflectionClass<object> $class
 * @return list<string>
 */
function described(ReflectionClass $class): array
{
    $kind = $class->isEnum() ? 'enum' : ($class->isInterface() ? 'interface' : 'class');
    $isFinal = $class->isFinal() && $kind === 'class';
    $words = [$isFinal ? 'final' : '', $class->isAbstract() && $kind === 'class' ? 'abstract' : '', $kind];
    $parent = $class->getParentClass() ?: null;
    $interfaces = array_diff($class->getInterfaceNames(), $parent?->getInterfaceNames() ?? [], ['Stringable']);
    sort($interfaces);
    $parents = array_filter([$parent?->getName(), ...$interfaces]);
    $lines = [implode(' ', array_filter($words)) . " {$class->getName()}"];
    $lines[0] .= $parents === [] ? '' : ': ' . implode(', ', $parents);
    $own = static fn (ReflectionMethod|ReflectionProperty|ReflectionClassConstant $of): bool =>
        $of->isPublic() && !isInternal($of) && $of->getDeclaringClass()->getName() === $class->getName();
    foreach (array_filter($class->getReflectionConstants(), $own) as $constant) {
        $value = $constant->getValue();
        $value = $value instanceof BackedEnum ? $value->value : (is_object($value) ? null : $value);
        $lines[] = "    const {$constant->getName()}" . ($value === null ? '' : ' = ' . json_encode($value));
    }
    foreach (array_filter($class->getProperties(), $own) as $property) {
        $words = [$property->isReadOnly() ? 'readonly' : '', (string) $property->getType()];
        $lines[] = '    ' . implode(' ', array_filter($words)) . " \${$property->getName()}";
    }
    foreach (array_filter($class->getMethods(), $own) as $method) {
        $result = $method->getReturnType();
        $parameters = implode(', ', array_map(parameter(...), $method->getParameters()));
        $lines[] = ($method->isStatic() ? '    static ' : '    ') . "{$method->getName()}($parameters)"
            . ($result === null ? '' : ": $result");
    }
    return $lines;
}

function parameter(ReflectionParameter $parameter): string
{
    $text = trim("{$parameter->getType()} " . ($parameter->isVariadic() ? '...' : '') . "\${$parameter->getName()}");
    if (!$parameter->isDefaultValueAvailable()) {
        return $text;
    }
    return "$text = " . ($parameter->isDefaultValueConstant()
        ? $parameter->getDefaultValueConstantName()
        : json_encode($parameter->getDefaultValue()));
}
