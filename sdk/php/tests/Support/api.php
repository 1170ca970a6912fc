<?php

/**
 * Says what programs may use of this package: public classes, and what they have that is public, a line each.
 *
 * The namespaces `Direct`, `Kernel`, `Policy` and `Rules`, and the rest of `Redis`, are the inside.
 */

declare(strict_types=1);

require __DIR__ . '/../bootstrap.php';
require __DIR__ . '/../stubs/symfony7.php';

const OF_REDIS = ['ConnectionFailure', 'ErrorReply', 'PhpRedis', 'PhpRedisCluster', 'Predis', 'Runner'];

$source = dirname(__DIR__, 2) . '/src';
$names = [];
foreach (new RecursiveIteratorIterator(new RecursiveDirectoryIterator($source)) as $file) {
    $name = substr((string) $file, strlen($source) + 1, -4);
    [$folder, $class] = [strtok($name, '/'), basename($name)];
    $isInside = in_array($folder, ['Direct', 'Kernel', 'Policy', 'Rules'], true)
        || ($folder === 'Redis' && !in_array($class, OF_REDIS, true));
    if (str_ends_with((string) $file, '.php') && !$isInside) {
        $names[] = 'Sluicegate\\' . strtr($name, '/', '\\');
    }
}
sort($names);
foreach ($names as $name) {
    echo implode("\n", described(new ReflectionClass($name))), "\n";
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
        $of->isPublic() && $of->getDeclaringClass()->getName() === $class->getName();
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
